"""Two calls at once in threads of one process, and the random states of the calling program."""

import random
from contextlib import contextmanager
from threading import Event, Thread

import numpy as np
import pytest
import torch

import pairsmith
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import ScoredPair
from pairsmith.models.language.scripted import ScriptedModel
from pairsmith.models.loading import opened

pytestmark = pytest.mark.slow

PAIRS = [ScoredPair(str(n), f"A dog number {n}.", f"A dog of {n} years.", n / 4) for n in range(5)]
LONG_ENOUGH = 0.5
"""Seconds in which the second call would get ahead if it did not wait for the first."""


def test_a_second_call_on_a_model_waits_for_the_first():
    model = ScriptedModel(lambda prompt, written: {"a": 1.0} if len(written) < 2 else {'"': 1.0}, 'a"')
    task = pairsmith.load_task("sts")
    begun, early, rows = Event(), [], []

    def steered(label, counter):
        begun.set()
        return label

    def second():
        rows.extend(pairsmith.generate_pairs(task, model, ["b"], rule=steered).rows)

    thread = Thread(target=second)

    def rule(label, counter):
        if thread.ident is None:  # the first call is under way
            thread.start()
            early.append(begun.wait(LONG_ENOUGH))
        return label

    pairsmith.generate_pairs(task, model, ["a"], rule=rule)
    thread.join()
    assert early == [False]
    assert [row.sentence2 for row in rows] == ["aa"] * 3


def test_a_second_model_is_loaded_after_the_first(tiny_gpt2):
    loaded, results = Event(), []

    def second():
        results.append(pairsmith.load_language_model(tiny_gpt2, device="cpu"))
        loaded.set()

    thread = Thread(target=second)
    with opened(str(tiny_gpt2), "{}"):
        thread.start()
        assert not loaded.wait(LONG_ENOUGH)
    thread.join()
    assert results[0].name == str(tiny_gpt2)


class Stepping(Silent):
    """Calls a function after each step of a training."""

    def __init__(self, after_step):
        super().__init__()
        self._after_step = after_step

    def draw(self, bar):
        self._after_step()


class Beginning(Silent):
    """Sets an event when a training begins."""

    def __init__(self, event):
        super().__init__()
        self._event = event

    @contextmanager
    def task(self, label, total, unit):
        self._event.set()
        with super().task(label, total, unit) as bar:
            yield bar


def test_a_second_training_waits_for_the_first(quick_bert):
    first, second = (pairsmith.load_encoder(quick_bert, device="cpu") for _ in range(2))
    begun, early = Event(), []

    def train_second():
        pairsmith.train_encoder(second, PAIRS, max_steps=2, progress=Beginning(begun))

    thread = Thread(target=train_second)

    def after_step():
        if thread.ident is None:
            thread.start()
            early.append(begun.wait(LONG_ENOUGH))

    pairsmith.train_encoder(first, PAIRS, max_steps=2, progress=Stepping(after_step))
    thread.join()
    assert early == [False]
    assert begun.is_set()
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_training_leaves_the_random_numbers_of_the_program_as_they_were(quick_bert):
    def draws():
        return random.random(), np.random.random(), torch.rand(1).item()

    encoder = pairsmith.load_encoder(quick_bert, device="cpu")
    questions = pairsmith.generate_questions(
        ["Ann met Bob in Rome."], pairsmith.load_question_generator("cloze")
    )
    trainings = (
        lambda: pairsmith.train_encoder(encoder, PAIRS, max_steps=1),
        lambda: pairsmith.distil(questions, quick_bert, labels="answers", max_steps=1, device="cpu"),
    )
    for training in trainings:
        torch.manual_seed(5)
        random.seed(6)
        np.random.seed(7)
        expected = draws()
        torch.manual_seed(5)
        random.seed(6)
        np.random.seed(7)
        training()
        assert draws() == expected
