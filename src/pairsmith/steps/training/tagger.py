"""The step ``train-tagger``: an encoder and a linear layer that find named entities (Q10)."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from pairsmith.core.citations import QUIP
from pairsmith.core.errors import InputError, ModelError, SettingsError, counted, joined_names
from pairsmith.core.model_names import resolve_model
from pairsmith.core.paths import Place, place
from pairsmith.core.progress import Progress, Silent
from pairsmith.core.yamlfile import read_yaml
from pairsmith.data.splits import to_train_on
from pairsmith.data.tagged import TaggedSentence, has_tags_beside, read_tagged, tags_beside
from pairsmith.methods.quip.names import questions_for, train_on_sentences, types_of
from pairsmith.models.span_encoder import SpanEncoder, load_span_encoder, require_question_heads
from pairsmith.models.span_heads import heads_kind
from pairsmith.models.tagger import Tagger, check_for_tagger, tagger_of
from pairsmith.models.token_vectors import TokenEncoder, load_token_encoder
from pairsmith.runs import Run, hash_source, resolve_dtype
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.planning import count_in_run, evenly_spaced
from pairsmith.steps.shared import named, refuse_sources
from pairsmith.steps.training.card import TAGGER, training_card
from pairsmith.steps.training.plan import BESIDE_WEIGHTS
from pairsmith.steps.training.settings import TrainTaggerSettings
from pairsmith.steps.training.step import (
    Save,
    Trained,
    TrainingIdentity,
    claimed_folder,
    save_with_card,
    train_once,
)
from pairsmith.training.best_step import TrainingHistory
from pairsmith.training.folder import ModelFolder
from pairsmith.training.processes import Processes

Start = Literal["random", "questions"]
"""How the linear layer is initialised."""

_SAMPLE = 256
"""About the number of sentences on which a plan trains."""
_USE = """```python
import pairsmith

tagger = pairsmith.load_tagger("path/to/this/folder")
for entity in tagger.find_entities(["Ada Lovelace lived in London."])[0]:
    print(entity.type, entity.text)
```

`AutoModelForTokenClassification` of transformers opens the folder, too."""


def train_tagger(settings: TrainTaggerSettings, run: Run) -> Place:
    """Train a tagger on all sentences, save it in the run's folder, and return that folder.

    A training that was stopped begins again. A folder with a tagger of the same settings and data is left as
    it is.
    """
    if Processes.current().size > 1:
        raise SettingsError("train-tagger runs in one process: its batches are too small to be shared")
    settings = resolve_dtype(settings, run)
    settings = settings.model_copy(
        update={"data": to_train_on(settings.data, "trained on", run.progress.say)}
    )
    refuse_sources(run, data=settings.data, base=settings.base)
    start = _start(settings)
    sentences = _sentences(settings)
    questions = questions_of(sentences, settings.questions) if start == "questions" else None

    def fit(folder: ModelFolder) -> tuple[Save, TrainingHistory]:
        types = types_of(sentences)
        run.progress.say(f"{len(sentences):,} sentences with entities of the types {joined_names(types)}")
        begun = time.monotonic()
        tagger, steps = _trained(settings, start, sentences, questions, run.progress)
        history = TrainingHistory(steps, steps, "", {}, time.monotonic() - begun)
        facts = {
            "sentences": f"{len(sentences):,}",
            "types of entities": ", ".join(types),
            "the layer that predicts tags began": "from questions" if questions else "at random",
        }
        save = partial(save_with_card, tagger)
        trained = Trained("A tagger of named entities", _USE, TAGGER, (tagger.model,), save, facts, history)
        return partial(save, training_card(trained, settings, folder)), history

    identity = TrainingIdentity(inputs=_hashes(settings))
    claim = partial(claimed_folder, "train-tagger", QUIP, settings, {"data": settings.data}, identity, run)
    return train_once(run, Processes.current(), claim, fit, settings.base)


def _start(settings: TrainTaggerSettings) -> Start:
    """How the layer is initialised: if unset, from questions if the base has heads for them."""
    if settings.start == "questions" or (settings.start is None and settings.questions):
        try:
            require_question_heads(settings.base)
        except ModelError as error:
            raise ModelError(f"{error}, or --start random for any encoder") from error
    return settings.start or (
        "questions" if heads_kind(resolve_model(settings.base)) == "questions" else "random"
    )


def _sentences(settings: TrainTaggerSettings) -> list[TaggedSentence]:
    """The sentences to train on."""
    sentences = read_tagged(settings.data)
    if not types_of(sentences):
        raise InputError(f"{settings.data}: no sentence has an entity to learn; give others")
    return sentences


def _hashes(settings: TrainTaggerSettings) -> dict[str, str]:
    """The hashes of what is read besides ``data``: the tags in a file beside it, and the questions."""
    data, hashes = place(settings.data), dict[str, str]()
    if has_tags_beside(data):
        hashes["tags"] = hash_source(str(tags_beside(data)))
    if settings.questions:
        hashes["questions"] = hash_source(settings.questions)
    return hashes


def _trained(
    settings: TrainTaggerSettings,
    start: Start,
    sentences: Sequence[TaggedSentence],
    questions: dict[str, str] | None,
    progress: Progress,
) -> tuple[Tagger, int]:
    """Train a tagger; returns also the number of steps."""
    steps = settings.epochs * -(-len(sentences) // settings.batch_size)
    encoder = tagger_encoder(settings.base, start, settings)
    with named(settings.base):
        check_for_tagger(encoder)
    if long := _too_long(encoder, sentences):
        progress.say(
            f"of {counted(long, 'sentences')} only the beginning is learned, which the encoder can read at "
            "once; divide them"
        )
    with (
        progress.task("train", settings.epochs * len(sentences), "sentences") as bar,
        named(settings.base),
    ):
        network = train_on_sentences(
            encoder, sentences, questions, settings, seed=settings.seed, advance=bar.advance
        )
        return tagger_of(network.encoder, network.tags, network.rows.detach()), steps


def _too_long(encoder: TokenEncoder | SpanEncoder, sentences: Sequence[TaggedSentence]) -> int:
    """The number of sentences of which the encoder does not read the end."""
    tokens = encoder.tokens if isinstance(encoder, SpanEncoder) else encoder
    texts = [" ".join(sentence.words) for sentence in sentences]
    lengths = map(len, tokens.tokenizer(texts, verbose=False)["input_ids"])
    return sum(length > tokens.max_length for length in lengths)


class _Loads(Protocol):
    """Settings that say how an encoder is loaded."""

    @property
    def device(self) -> str: ...
    @property
    def max_length(self) -> int | None: ...


def tagger_encoder(model: str, start: Start, settings: _Loads) -> TokenEncoder | SpanEncoder:
    """Load the encoder; with its question heads if the linear layer is initialised from questions."""
    load = load_span_encoder if start == "questions" else load_token_encoder
    return load(model, device=settings.device, max_length=settings.max_length)


def questions_of(sentences: Sequence[TaggedSentence], own: str | None) -> dict[str, str]:
    """The questions for O and for each entity type of the sentences, by type.

    The questions in the user's YAML file ``own`` replace the built-in ones.
    """
    questions: dict[str, Any] = {}
    if own:
        file = read_yaml(Path(own), SettingsError)
        if file.duplicates:
            raise SettingsError(file.report([]))
        questions = {str(name): question for name, question in file.data.items()}
    try:
        return questions_for(types_of(sentences), questions)
    except SettingsError as error:
        raise SettingsError(f"{error}; write one in {own or '--questions FILE'}") from error


def plan_train_tagger(settings: TrainTaggerSettings, before: Before) -> Estimate:
    """Train on a sample of the sentences for a few epochs, from a random start, and extrapolate."""
    settings = settings.model_copy(update={"data": to_train_on(settings.data, "trained on")})
    start, sentences = _start(settings), _sentences(settings)
    if start == "questions":
        questions_of(sentences, settings.questions)  # reports a type without a question
    count = count_in_run(len(sentences), [settings.data], before)
    sample = evenly_spaced(sentences, _SAMPLE)
    sizes: list[int] = []

    def seconds_of(epochs: int) -> float:
        begun = time.monotonic()
        few = settings.model_copy(update={"epochs": epochs})
        tagger, _ = _trained(few, "random", sample, None, Silent())
        sizes.append(sum(weight.nbytes for weight in tagger.model.state_dict().values()))
        return time.monotonic() - begun

    first, short = seconds_of(1), seconds_of(1)  # the first training also loads libraries
    epoch = max(0.0, seconds_of(3) - short) / 2 * count / len(sample)
    return Estimate(seconds=first + epoch * settings.epochs, disk=sizes[0] + BESIDE_WEIGHTS)
