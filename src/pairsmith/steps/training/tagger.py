"""The step ``train-tagger``: an encoder and a linear layer that find named entities (Q10)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from pairsmith.core.citations import QUIP
from pairsmith.core.errors import InputError, ModelError, SettingsError, counted, joined_names
from pairsmith.core.model_names import resolve_model
from pairsmith.core.paths import place
from pairsmith.core.progress import Silent
from pairsmith.core.yamlfile import read_yaml
from pairsmith.data.tagged import TaggedSentence, has_tags_beside, read_tagged, tags_beside
from pairsmith.methods.quip.names import questions_for, train_on_sentences, types_of
from pairsmith.models.span_encoder import SpanEncoder, load_span_encoder, require_question_heads
from pairsmith.models.span_heads import heads_kind
from pairsmith.models.tagger import check_for_tagger, tagger_of
from pairsmith.models.token_vectors import TokenEncoder, load_token_encoder
from pairsmith.runs import hash_source
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.planning import count_in_run, evenly_spaced
from pairsmith.steps.shared import named
from pairsmith.steps.training.card import TAGGER
from pairsmith.steps.training.plan import BESIDE_WEIGHTS
from pairsmith.steps.training.reading import with_training_splits
from pairsmith.steps.training.settings import TrainTaggerSettings
from pairsmith.steps.training.step import (
    Trained,
    TrainingContext,
    TrainingIdentity,
    TrainingStep,
    save_with_card,
)
from pairsmith.training.best_step import TrainingHistory

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


@dataclass(frozen=True, slots=True)
class _Data:
    start: Start
    sentences: Sequence[TaggedSentence]
    questions: dict[str, str] | None  # by type; None for a random start


def _read(settings: TrainTaggerSettings, _: int | None) -> _Data:
    start = _start(settings)
    sentences = read_tagged(settings.data)
    if not types_of(sentences):
        raise InputError(f"{settings.data}: no sentence has an entity to learn; give others")
    questions = questions_of(sentences, settings.questions) if start == "questions" else None
    return _Data(start, sentences, questions)


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


def _identity(settings: TrainTaggerSettings) -> TrainingIdentity:
    """The hashes of what is read besides ``data``: the tags in a file beside it, and the questions."""
    data, hashes = place(settings.data), dict[str, str]()
    if has_tags_beside(data):
        hashes["tags"] = hash_source(str(tags_beside(data)))
    if settings.questions:
        hashes["questions"] = hash_source(settings.questions)
    return TrainingIdentity(inputs=hashes)


def _train(data: _Data, settings: TrainTaggerSettings, context: TrainingContext) -> Trained:
    types, progress = types_of(data.sentences), context["progress"]
    progress.say(f"{len(data.sentences):,} sentences with entities of the types {joined_names(types)}")
    begun = time.monotonic()
    encoder = tagger_encoder(settings.base, data.start, settings)
    with named(settings.base):
        check_for_tagger(encoder)
    if long := _too_long(encoder, data.sentences):
        progress.say(
            f"of {counted(long, 'sentences')} only the beginning is learned, which the encoder can read at "
            "once; divide them"
        )
    with (
        progress.task("train", settings.epochs * len(data.sentences), "sentences") as bar,
        named(settings.base),
    ):
        network = train_on_sentences(
            encoder, data.sentences, data.questions, settings, seed=settings.seed, advance=bar.advance
        )
        tagger = tagger_of(network.encoder, network.tags, network.rows.detach())
    steps = settings.epochs * -(-len(data.sentences) // settings.batch_size)
    facts = {
        "sentences": f"{len(data.sentences):,}",
        "types of entities": ", ".join(types),
        "the layer that predicts tags began": "from questions" if data.questions else "at random",
    }
    history = TrainingHistory(steps, steps, "", {}, time.monotonic() - begun)
    save = partial(save_with_card, tagger)
    return Trained("A tagger of named entities", _USE, TAGGER, (tagger.model,), save, facts, history)


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


def _plan(
    step: TrainingStep[TrainTaggerSettings, _Data], settings: TrainTaggerSettings, before: Before
) -> Estimate:
    """Train on a sample of the sentences for a few epochs, from a random start, and extrapolate."""
    settings = with_training_splits(settings)
    sentences = step.read(settings, None).sentences
    count = count_in_run(len(sentences), [settings.data], before)
    few = _Data("random", evenly_spaced(sentences, _SAMPLE), None)
    sizes: list[int] = []

    def seconds_of(epochs: int) -> float:
        begun = time.monotonic()
        context = TrainingContext(progress=Silent(), checkpoints=None)
        trained = step.train(few, settings.model_copy(update={"epochs": epochs}), context)
        sizes.append(sum(weight.nbytes for part in trained.parts for weight in part.state_dict().values()))
        return time.monotonic() - begun

    first, short = seconds_of(1), seconds_of(1)  # the first training also loads libraries
    epoch = max(0.0, seconds_of(3) - short) / 2 * count / len(few.sentences)
    return Estimate(seconds=first + epoch * settings.epochs, disk=sizes[0] + BESIDE_WEIGHTS)


train_tagger = TrainingStep(
    "train-tagger",
    ("data",),
    _read,
    _train,
    QUIP,
    _identity,
    alone="its batches are too small to be shared",
    planner=_plan,
)
"""Trains a tagger on all sentences, without checkpoints. ``AutoModelForTokenClassification`` opens the
folder."""
