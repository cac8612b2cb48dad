"""Questions without a model: sentences with a name or number taken out (Q6)."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.cli.app import main
from pairsmith.cli.steps import STEPS
from pairsmith.core.errors import SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.questions import read_generated_questions
from pairsmith.data.text import Entity
from pairsmith.methods.quip.cloze_generator import QUESTION_WORDS, ClozeGenerator, noisy_cloze
from pairsmith.methods.quip.passages import Passage
from pairsmith.runs import Run
from pairsmith.runs.storage import write_json
from pairsmith.steps.questions.ask import ask
from pairsmith.steps.questions.settings import AskSettings

PASSAGE = (
    "The bridge over the river was built in 1894 by Anna Berg. It was closed for two years. "
    "People of Stockholm still speak of the flood that took it."
)


class Calm:
    """Chances of a half: nothing is dropped, moved or blanked."""

    def random(self, count):
        return np.full(count, 0.5)

    def choice(self, words):
        return words[0]


def test_an_answer_is_taken_out_of_its_sentence():
    answer = Entity("Anna Berg", PASSAGE.index("Anna Berg"))
    assert noisy_cloze(PASSAGE, answer, Calm()) == "Who The bridge over the river was built in 1894 by?"
    year = Entity("1894", PASSAGE.index("1894"))
    assert noisy_cloze(PASSAGE, year, Calm()) == "Who The bridge over the river was built in by Anna Berg?"


def test_an_answer_that_is_all_of_its_sentence_gives_no_question():
    assert noisy_cloze("Stop! Anna Berg.", Entity("Anna Berg", 6), Calm()) == ""
    assert noisy_cloze("Anna Berg. Bob", Entity("Berg. Bob", 5), Calm()) == ""  # of two sentences


WORDS = [f"w{number}" for number in range(40)]


@pytest.fixture
def corpora(tmp_path):
    """Two corpora, of twelve texts of two passages each and of one text."""
    names = ["Anna Berg", "Bo Dahl", "Carl Ek"]
    lines = [f"In {1800 + n} {names[n % 3]} built it by the river. " * 2 for n in range(12)]
    (tmp_path / "large.txt").write_text("\n".join(lines))
    (tmp_path / "small.txt").write_text("In 1900 Dora Falk built it by the old river again.")
    return [str(tmp_path / "large.txt"), str(tmp_path / "small.txt")]


def test_so_many_passages_of_each_corpus_are_asked_about(corpora, tmp_path, capsys):
    def contexts(name, progress=None, **rest):
        given = AskSettings(inputs=corpora, model="cloze", max_length=16, questions=1, shard_size=5, **rest)
        return [
            row["context"]
            for row in ask(given, Run(tmp_path / name, progress or Silent())).table().to_pylist()
        ]

    every = contexts("every")
    assert len(every) == 25
    some = contexts("some", Progress(), sample=5)
    assert len(some) == 6
    assert set(some) < set(every)
    assert some[-1].startswith("In 1900")
    assert "small.txt has 1 passage, fewer than --sample 5; all are used" in capsys.readouterr().err
    assert contexts("some", sample=5) == some
    assert contexts("other", sample=5, seed=2) != some
    # What was drawn is kept, so that a run that goes on need not cut all texts again.
    (tmp_path / "some" / "data" / "train-00000.parquet").unlink()
    before = (tmp_path / "some" / "sample.json").stat().st_mtime_ns
    assert contexts("some", sample=5) == some
    assert (tmp_path / "some" / "sample.json").stat().st_mtime_ns == before
    assert len(contexts("all", sample=1_000)) == 25


def test_a_rank_takes_the_passages_that_another_has_drawn(corpora, tmp_path, monkeypatch):
    given = AskSettings(
        inputs=corpora, model="cloze", max_length=16, questions=1, shard_size=5, sample=5, executor="array"
    )
    one = ask(given.model_copy(update={"executor": "local"}), Run(tmp_path / "one", Silent()))
    drawn = []
    monkeypatch.setattr(
        "pairsmith.steps.questions.ask.write_json",
        lambda file, content: drawn.append(file) or write_json(file, content),
    )
    for number in (1, 0):
        rank = given.model_copy(update={"rank": number, "world_size": 2})
        STEPS["ask"].run(rank, Run(tmp_path / "out", Silent()))
    assert drawn == [tmp_path / "out" / "rank-1-of-2" / "sample.json"]
    files = [
        [file.read_bytes() for file in sorted((folder / "data").iterdir())]
        for folder in (tmp_path / "out", one.path)
    ]
    assert files[0] == files[1]


@given(seed=st.integers(0, 2**32 - 1))
def test_words_are_dropped_moved_a_little_and_blanked(seed):
    text = " ".join([*WORDS, "Anna"]) + "."
    question = noisy_cloze(text, Entity("Anna", text.index("Anna")), np.random.default_rng(seed))
    first, *rest = question.removesuffix("?").split()
    assert first in QUESTION_WORDS
    left = [int(word[1:]) for word in rest if word != "_"]
    assert len(set(left)) == len(left) <= len(rest) <= len(WORDS)
    # Behind a word there is none that stood more than 3 kept words before it, and kept ones are not fewer.
    kept = sorted(left)
    for place, number in enumerate(left):
        earlier = [other for other in left[place + 1 :] if other < number]
        assert len(earlier) <= 3
        assert all(kept.index(number) - kept.index(other) <= 3 for other in earlier)


def test_words_are_moved_by_up_to_3_places():
    """As in the clozes of Lewis et al. (2019): a word that stood 3 places before another may follow it."""
    text = " ".join([*WORDS, "Anna"]) + "."
    furthest = 0
    for seed in range(100):
        question = noisy_cloze(text, Entity("Anna", text.index("Anna")), np.random.default_rng(seed))
        left = [int(word[1:]) for word in question.removesuffix("?").split()[1:] if word != "_"]
        kept = sorted(left)
        for place, number in enumerate(left):
            moves = [kept.index(number) - kept.index(other) for other in left[place + 1 :]]
            furthest = max([furthest, *moves])
    assert furthest == 3


def test_words_are_dropped_and_blanked_as_often_as_said():
    text = " ".join([*WORDS, "Anna"]) + "."
    answer = Entity("Anna", text.index("Anna"))
    questions = [noisy_cloze(text, answer, np.random.default_rng(seed)).split()[1:] for seed in range(500)]
    assert np.mean([len(words) for words in questions]) == pytest.approx(36, abs=0.3)
    assert np.mean([word in ("_", "_?") for words in questions for word in words]) == pytest.approx(
        0.1, abs=0.01
    )


def test_questions_without_a_model_have_places_and_do_not_change(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text(f"{PASSAGE}\nall of this was long ago.\n")
    settings = AskSettings(inputs=[str(path)], model="cloze", questions=4)
    folder = ask(settings, Run(tmp_path / "out", Silent()))
    rows = folder.table().to_pylist()
    assert len(rows) == 4
    for row in rows:
        start = row["answers"]["answer_start"][0]
        assert row["context"][start:].startswith(row["written"])
        assert re.fullmatch(rf"({'|'.join(QUESTION_WORDS)}) .*\?", row["question"])
        assert row["written"] not in row["question"]
    assert {"1894", "Anna Berg"} <= {row["written"] for row in rows}
    assert len(list(read_generated_questions(str(folder.path)))) == 4
    assert "by taking out a name or number" in (folder.path / "README.md").read_text()
    small = settings.model_copy(update={"shard_size": 1, "workers": 2})
    assert ask(small, Run(tmp_path / "small", Silent())).table().to_pylist() == rows
    assert ask(settings, Run(tmp_path / "out", Silent())).manifest == folder.manifest


def test_the_place_is_that_of_the_sentence_that_is_asked_about():
    text = "The bank of the river was steep. She sold it to the Bank of Norway in 1894."
    passage = Passage("p", text)
    asker = ClozeGenerator(AskSettings(inputs=["x"], model="cloze", questions=9).options)
    asker.generate([passage])
    assert passage.rejects == []
    rows = [question.columns() for question in passage.questions.values()]
    for row in rows:
        (answer,), (start,) = row["answers"]["text"], row["answers"]["answer_start"]
        assert answer == row["written"] == text[start : start + len(answer)]
    assert not any(row["answers"]["text"] == ["bank"] for row in rows)


def test_a_long_sentence_makes_no_question():
    text = f"Anna Berg said that {'he knew it and ' * 30}left."
    passage = Passage("p", text)
    ClozeGenerator(AskSettings(inputs=["x"], model="cloze", questions=2, tries=1).options).generate([passage])
    assert {reject.filter for reject in passage.rejects} == {"too long"}
    assert not passage.questions


def test_a_passage_without_a_name_is_a_reject():
    passage = Passage("p", "all was long ago.")
    ClozeGenerator(AskSettings(inputs=["x"], model="cloze").options).generate([passage])
    (reject,) = passage.rejects
    assert (reject.filter, reject.id) == ("no answer", "p")


def test_passages_are_counted_in_words_and_marks_and_finders_are_known():
    asker = ClozeGenerator(AskSettings(inputs=["x"], model="cloze", max_length=20).options)
    assert asker.limit == 20
    assert asker.length("Don't go, Anna!") == 7
    with pytest.raises(SettingsError, match="no answer finder is called 'rules'"):
        ClozeGenerator(AskSettings(inputs=["x"], model="cloze", answers="rules").options)


def test_after_a_run_without_rows_no_command_is_named_that_would_fail(tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    said = {}
    for name, text in {"none": "hello", "some": PASSAGE}.items():
        texts.write_text(text)
        with pytest.raises(SystemExit, match="0"):
            main(["ask", "--inputs", str(texts), "--model", "cloze", "--out", str(tmp_path / name)])
        said[name] = capsys.readouterr().err
    assert "no row was kept" in said["none"]
    assert "next:" not in said["none"]
    assert "next: pairsmith relabel" in said["some"]
