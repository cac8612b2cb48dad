"""QUIP (Jia, Lewis and Zettlemoyer 2021): an encoder whose token vectors answer questions.

1. Texts are cut into passages of whole sentences (Q1).
2. For each passage, a question generator writes answers, each with a question; distinct questions are kept
   (Q2).
3. A teacher reads question and passage together. For every token i of the passage, the teacher gives the
   probability T_start(i) that the answer starts there, and the probability T_end(i) that the answer ends
   there (Q3). The teacher is trained like the reader of few-shot mining (``methods/mining/reader.py``).
4. A student encodes passage c and question q separately. With r(c)_i the vector of token i of the passage,
   and f_start(q) a vector computed from the question's first token, the student predicts p(start = i),
   proportional to exp(r(c)_i · f_start(q)), and p(end = i) likewise with f_end (Q4; Eq. 1 and 2 of the
   paper). The student is trained on the cross-entropy of the two predictions with T_start and T_end (Q5;
   Eq. 3; ``student.py``).

The student is used for answers (``models/span_answers.py``), paraphrases (``paraphrase.py``), names
(``names.py``) and sentiment (``sentiment.py``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairsmith.core.arguments import (
    check_loaded,
    check_not_blank,
    check_not_empty,
    check_progress,
    checked_rows,
    checked_texts,
    checked_whole_number,
    model_name,
)
from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError, SettingsError, counted
from pairsmith.core.progress import Progress, Silent
from pairsmith.core.validation import checked_options, refuse_options_of_steps
from pairsmith.data.documents import Document
from pairsmith.data.questions import GeneratedQuestion
from pairsmith.data.squad import Question
from pairsmith.methods.quip.passages import QuestionGenerator, cut_passages
from pairsmith.methods.quip.training_options import StudentOptions
from pairsmith.models.locks import locked
from pairsmith.models.reader import ANSWER_TOKENS, Prediction, Reader
from pairsmith.models.span_answers import answer_with_span_encoder
from pairsmith.models.span_encoder import SpanEncoder
from pairsmith.models.teacher import TOP, SpanDistributions, predict_spans
from pairsmith.runs.mapped import ProgressScaler
from pairsmith.runs.work import Advance

if TYPE_CHECKING:
    from pairsmith.methods.quip.student import TrainedStudent

_ANSWERED_AT_ONCE = 2_000
"""Number of questions that a teacher answers at once; their windows and scores are in memory together."""


def generate_questions(
    texts: Iterable[str], generator: QuestionGenerator, *, progress: Progress | None = None
) -> list[GeneratedQuestion]:
    """Generate questions on texts, each with its answer (Q1, Q2).

    Args:
        texts: texts of any length, none of them blank; of equal texts, the first one counts.
        generator: the question generator, as ``load_question_generator`` loads it.
        progress: shows how many of the passages are done; by default nothing is shown.

    Returns:
        the questions in the order of the texts. ``answer`` is None if the generated answer does not occur in
        the passage. Left out are words that alone exceed the generator's limit, faulty outputs and repeated
        questions; the step ``ask`` stores them as rejects.

    Raises:
        InputError: ``texts`` is a single text or empty, or contains a blank text or anything but texts.
        SettingsError: the generator is not loaded.
    """
    check_progress(progress)
    check_loaded(generator, "generator", "tries", "load_question_generator")
    distinct = dict.fromkeys(checked_texts(texts, "texts"))
    check_not_empty(distinct, "texts", "text")
    check_not_blank(distinct, "texts")
    documents = [Document(text, "") for text in distinct]
    # Cut the texts into passages (Q1).
    passages_of_texts, _ = cut_passages(generator, documents)
    passages = [passage for of_text in passages_of_texts for passage in of_text]
    # Write answers and questions (Q2).
    with (progress or Silent()).task("generate", len(passages), "passages") as bar, locked(generator):
        scaler = ProgressScaler(len(passages), len(passages) * generator.tries, bar.advance)
        generator.generate(passages, scaler)
        scaler.finish()
    return [question for passage in passages for question in passage.questions.values()]


def label_questions(
    questions: Iterable[GeneratedQuestion],
    teacher: Reader,
    *,
    top: int = TOP,
    max_answer_tokens: int = ANSWER_TOKENS,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> list[GeneratedQuestion]:
    """Label questions with a teacher's distributions of the answer's start and end (Q3).

    Args:
        questions: generated questions of any source; may be empty.
        teacher: a reader, which reads question and passage together.
        top: number of the likeliest starts, and of the likeliest ends, that are kept for each question; the
            probabilities of the others become 0.
        max_answer_tokens: longest answer in tokens.
        batch_tokens: largest number of tokens in a batch; None: what suits the device.
        progress: shows how many of the questions are answered; by default nothing is shown.

    Returns:
        the questions with the distributions ``starts`` and ``ends`` over the characters of their passage,
        with the teacher's best span as ``answer``, and with its probability as ``confidence``. The answer is
        None if the passage has no tokens.

    Raises:
        InputError: ``questions`` contains anything but generated questions.
        SettingsError: the teacher is not loaded, or a number is less than 1.
    """
    check_progress(progress)
    check_loaded(teacher, "teacher", "tokenized", "load_reader")
    top = checked_whole_number(top, "top", 1)
    max_answer_tokens = checked_whole_number(max_answer_tokens, "max_answer_tokens", 1)
    if batch_tokens is not None:
        batch_tokens = checked_whole_number(batch_tokens, "batch_tokens", 1)
    questions = checked_rows(questions, "questions", GeneratedQuestion)
    with (progress or Silent()).task("answer", len(questions), "questions") as bar:
        return add_labels(
            questions,
            teacher,
            top=top,
            max_answer_tokens=max_answer_tokens,
            batch_tokens=batch_tokens,
            advance=bar.advance,
        )


def add_labels(
    questions: Sequence[GeneratedQuestion],
    teacher: Reader,
    *,
    top: int,
    max_answer_tokens: int,
    batch_tokens: int | None,
    advance: Advance,
) -> list[GeneratedQuestion]:
    """The questions as ``label_questions`` returns them; ``advance`` is called as by ``predict_spans``.

    The teacher answers 2,000 questions at once, the largest default size of a shard, so that memory for
    windows does not grow with the questions. Windows are batched within these 2,000; with more questions,
    the last digits of probabilities may differ from those of a call with all windows at once.
    """
    labelled = []
    for part in in_batches(questions, _ANSWERED_AT_ONCE):
        labels = predict_spans(
            teacher,
            [question.question for question in part],
            [question.context for question in part],
            top=top,
            max_answer_tokens=max_answer_tokens,
            batch_tokens=batch_tokens,
            advance=advance,
        )
        labelled += [_labelled(question, label) for question, label in zip(part, labels, strict=True)]
    return labelled


def distil(
    questions: Iterable[GeneratedQuestion],
    /,  # so that ``options`` can hold the training option of the same name
    base: str | Path,
    *,
    validation: Iterable[Question] = (),
    device: str = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> "TrainedStudent":
    """Train a student on labelled questions (Q4, Q5).

    Args:
        questions: questions with the teacher's distributions; with ``labels="answers"``, with answers.
        base: name of the encoder to start from.
        validation: human-written questions that choose the best step; without any, the last step is kept.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        progress: shows how far the training is; by default nothing is shown.
        options: options of the command ``infuse`` by name, such as ``max_steps=100`` or
            ``learning_rate=1e-5``: ``attention_dropout``, ``batch_size``, ``batch_tokens``, ``dtype``,
            ``epochs``, ``eval_steps``, ``keep_base``, ``labels``, ``learning_rate``, ``loader_workers``,
            ``max_length``, ``max_steps``, ``negatives``, ``questions``, ``seed``, ``together``, ``warmup``,
            ``weight_decay``. The questions themselves are given by position, as ``questions`` is the largest
            number of them for each passage in a step.

    Returns:
        The training: its ``model`` is the student, as ``load_student`` returns it.

    Raises:
        InputError: a question has no distributions, or is of another class; or all answers lie in parts of
            the passages that the student does not read.
        ModelError: the base cannot be loaded, or the training diverged.
        SettingsError: an option is unknown, has an invalid value, or only applies to a training with a
            folder.
    """
    # Imported here, as it loads the trainer of transformers, which takes seconds.
    from pairsmith.methods.quip.student import grouped_by_passage, train_student_on

    check_progress(progress)
    refuse_options_of_steps("distil", options)
    if "data" in options:
        raise SettingsError("distil: data: give the questions themselves, as the first argument")
    how = checked_options(
        "distil", StudentOptions, {"base": model_name(base, "base"), "device": device, **options}
    )
    questions = checked_rows(questions, "questions", GeneratedQuestion)
    validation = checked_rows(validation, "validation", Question)
    if how.keep_base and not validation:
        raise SettingsError("distil: keep_base has no effect without validation questions; leave it out")
    check_not_empty(questions, "questions", "GeneratedQuestion")
    passages = grouped_by_passage(questions, how.labels)
    return train_student_on(passages, validation, how, progress=progress)


def answer_with_student(
    student: SpanEncoder,
    questions: Iterable[str],
    contexts: Iterable[str],
    *,
    max_answer_tokens: int = ANSWER_TOKENS,
    progress: Progress | None = None,
) -> list[Prediction]:
    """Answer each question by a span of its text; probabilities are softmaxes over the whole text (Q7).

    Args:
        student: the student, as ``load_student`` loads it; it is put into evaluation mode.
        questions: n questions, may be none; each is truncated to 64 tokens.
        contexts: the text of each question; if it is blank, the answer is empty and has score 0.
        max_answer_tokens: the largest number of tokens of an answer.
        progress: shows how many of the questions are answered; by default nothing is shown.

    Returns:
        The answer to each question: its text, the offset of its first character in the context, and its
        probability.

    Raises:
        InputError: ``questions`` or ``contexts`` is not a list of texts, or their lengths differ.
        ModelError: the student's vectors are not finite.
        SettingsError: the student is not loaded, or ``max_answer_tokens`` is less than 1.
    """
    check_progress(progress)
    check_loaded(student, "student", "question_vectors", "load_student")
    max_answer_tokens = checked_whole_number(max_answer_tokens, "max_answer_tokens", 1)
    questions, contexts = checked_texts(questions, "questions"), checked_texts(contexts, "contexts")
    if len(questions) != len(contexts):
        raise InputError(
            f"got {counted(len(questions), 'questions')} and {counted(len(contexts), 'contexts')}; give one "
            "context for each question"
        )
    with (progress or Silent()).task("answer", len(questions), "questions") as bar:
        return answer_with_span_encoder(
            student, questions, contexts, max_answer_tokens=max_answer_tokens, advance=bar.advance
        )


def _labelled(question: GeneratedQuestion, label: SpanDistributions) -> GeneratedQuestion:
    best = label.best
    answer = (best.start, best.start + len(best.text)) if best.text else None
    return replace(question, answer=answer, starts=label.starts, ends=label.ends, confidence=best.score)
