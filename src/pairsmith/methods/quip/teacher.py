"""The step ``train-teacher``: a cross-encoder that answers questions, for a student to learn from (Q3).

questions with answers -> windows that contain an answer -> two perceptrons classify start and end -> teacher
"""

from functools import partial
from itertools import chain
from pathlib import Path

from pairsmith.core.model_files import pick_device
from pairsmith.core.paths import Place
from pairsmith.data.squad import read_questions
from pairsmith.methods.mining.few_shot import at_splits, begin, numbered, refuse_sources
from pairsmith.methods.mining.reader import train_reader_on
from pairsmith.models.reader import PerceptronReader, Reader
from pairsmith.models.span_heads import save_heads
from pairsmith.runs import Run, settled
from pairsmith.training.card import few_shot_card
from pairsmith.training.folder import save_transformer
from pairsmith.training.question_settings import TrainTeacherSettings

_USE = """```
pairsmith relabel --data questions --model path/to/this/folder --out relabelled
pairsmith evaluate qa --model path/to/this/folder --data questions.json --out results
```"""


def train_teacher(settings: TrainTeacherSettings, run: Run) -> Place:
    """Train a teacher on questions with answers, and save it in the run's folder.

    Its encoder opens with ``AutoModel``; the perceptrons are saved beside it.

    Returns:
        The run's folder.

    Raises:
        FolderError: the run's folder holds something else.
        InputError: questions cannot be read, or no window contains an answer.
        ModelError: the base cannot be loaded, or the training diverged.
        SettingsError: there is no such device.
        StorageError: the model cannot be written.
    """
    settings = at_splits(settled(settings, run), run.progress.say)
    device = pick_device(settings.device)
    sources = numbered("data", settings.data) | {"validation": settings.validation}
    refuse_sources(run, settings, sources)
    questions = list(chain.from_iterable(map(read_questions, settings.data)))
    unseen = list(read_questions(settings.validation)) if settings.validation else []
    folder = begin(run, "train-teacher", settings, sources=sources)
    if folder is None:
        return run.out
    trained = train_reader_on(
        questions,
        unseen,
        settings,
        device,
        perceptrons=True,
        progress=run.progress,
        checkpoints=folder.checkpoints,
    )
    facts = {
        "questions": trained.questions,
        "left out, as no window holds the answer": len(questions) - trained.questions,
        "validation": len(unseen),
        "learning rate": trained.learning_rate,
    }
    title = "A teacher that finds answers in texts"
    card = few_shot_card(title, _USE, settings, facts, trained.training, folder)
    folder.finish(partial(save_teacher, trained.reader, card), trained.training.to_json())
    run.progress.say(f"wrote {run.out}: {trained.training}")
    return run.out


def save_teacher(teacher: Reader, card: str, out: Path) -> None:
    """Save the encoder as a transformers model, and the perceptrons beside it."""
    assert isinstance(teacher.model, PerceptronReader)
    save_transformer(teacher.model.encoder, teacher.tokenizer, card, out)
    save_heads(teacher.model.heads, out)
