"""QUIP (Jia, Lewis and Zettlemoyer 2021): an encoder whose token vectors answer questions.

1. Texts are cut into passages of whole sentences (Q1).
2. A question generator writes answers with their questions for each passage; distinct questions are kept
   (Q2).
3. A teacher, which reads question and passage together, says of every token of the passage how likely an
   answer starts or ends there (Q3).
4. A student encodes passage and question apart. It learns the teacher's distributions from the products of
   the question's two vectors with the vectors of the passage's tokens (Q4, Q5).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pairsmith.core.arguments import check_loaded, checked_rows, checked_texts
from pairsmith.core.errors import SettingsError
from pairsmith.core.progress import Progress
from pairsmith.core.validation import options_of, refuse_options_of_steps
from pairsmith.data.documents import Document
from pairsmith.data.questions import GeneratedQuestion
from pairsmith.data.squad import Question
from pairsmith.methods.quip.passages import QuestionGenerator, cut_passages
from pairsmith.methods.quip.training_options import StudentOptions
from pairsmith.models.reader import ANSWER_TOKENS, Reader
from pairsmith.models.teacher import TOP, SpanDistributions, predict_spans
from pairsmith.runs.work import Advance

if TYPE_CHECKING:
    from pairsmith.methods.quip.student import TrainedStudent


def generate_questions(texts: Iterable[str], generator: QuestionGenerator) -> list[GeneratedQuestion]:
    """Generate questions of texts, each with its answer (Q1, Q2).

    Args:
        texts: of any length; of equal ones the first counts.
        generator: as ``load_question_generator`` gives it.

    Returns:
        the questions in the order of the texts. ``answer`` is None where the generated answer does not occur
        in the passage. Words of more tokens than the generator's limit, and outputs that are no new question,
        are left out; the step ``ask`` keeps them as rejects.

    Raises:
        InputError: ``texts`` is a single text, or holds something else than texts.
        SettingsError: the generator is not loaded.
    """
    check_loaded(generator, "generator", "limit", "load_question_generator")
    distinct = dict.fromkeys(checked_texts(texts, "texts"))
    documents = [Document(text, "") for text in distinct]
    of_texts, _ = cut_passages(generator, documents)
    every = [passage for of_text in of_texts for passage in of_text]
    generator.generate(every)
    return [question for passage in every for question in passage.questions.values()]


def label_questions(
    questions: Sequence[GeneratedQuestion],
    teacher: Reader,
    *,
    top: int = TOP,
    max_answer_tokens: int = ANSWER_TOKENS,
    batch_tokens: int | None = None,
    advance: Advance = lambda _: None,
) -> list[GeneratedQuestion]:
    """Have a teacher say where the answers start and end, with which probability (Q3).

    Args:
        questions: of any source.
        teacher: reads question and passage together.
        top: the likeliest starts and ends that are kept of each question; the others count as impossible.
        max_answer_tokens: the longest answer.
        batch_tokens: most tokens that are read at once; what suits the device where it is not given.
        advance: called with the number of questions that are answered.

    Returns:
        the questions with ``starts`` and ``ends``, and the teacher's best span as their ``answer``, with its
        ``confidence``; the answer is None where the passage has no tokens.

    Raises:
        InputError: ``questions`` holds something else than generated questions.
        SettingsError: the teacher is not loaded.
    """
    check_loaded(teacher, "teacher", "tokenized", "load_reader")
    questions = checked_rows(questions, "questions", GeneratedQuestion)
    labels = predict_spans(
        teacher,
        [question.question for question in questions],
        [question.context for question in questions],
        top=top,
        max_answer_tokens=max_answer_tokens,
        batch_tokens=batch_tokens,
        advance=advance,
    )
    return [_labelled(question, label) for question, label in zip(questions, labels, strict=True)]


def distil(
    questions: Iterable[GeneratedQuestion],
    base: str,
    *,
    validation: Sequence[Question] = (),
    device: str = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> "TrainedStudent":
    """Train a student on labelled questions (Q4, Q5).

    Args:
        questions: with the teacher's distributions, or with answers for ``labels="answers"``.
        base: the encoder to start from, by name.
        validation: questions of people, by which the best step is chosen; without them the last one is kept.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        progress: shows how far the training is; by default nothing is shown.
        options: the fields of ``StudentOptions`` by name, such as ``max_steps`` or ``learning_rate=[1e-5]``.

    Raises:
        InputError: a question has no distributions, or no answer lies within what is read of its passage; or
            a question is of another class.
        ModelError: the base cannot be loaded, or the training diverged.
        SettingsError: an option is unknown, has a value that it cannot have, or needs a training with a
            folder.
    """
    # Imported here, as it loads the trainer of transformers, which takes seconds.
    from pairsmith.methods.quip.student import grouped_by_passage, train_student_on

    refuse_options_of_steps("distil", options)
    if "data" in options:
        raise SettingsError("distil: data: give the questions themselves, as the first argument")
    if options.get("keep_base") and not validation:
        raise SettingsError("distil: keep_base has no effect without validation questions; leave it out")
    how = options_of("distil", StudentOptions, {"base": base, "device": device, **options})
    questions = checked_rows(questions, "questions", GeneratedQuestion)
    validation = checked_rows(validation, "validation", Question)
    passages = grouped_by_passage(questions, how.labels)
    return train_student_on(passages, validation, how, progress=progress)


def _labelled(question: GeneratedQuestion, label: SpanDistributions) -> GeneratedQuestion:
    best = label.best
    answer = (best.start, best.start + len(best.text)) if best.text else None
    return replace(question, answer=answer, starts=label.starts, ends=label.ends, confidence=best.score)
