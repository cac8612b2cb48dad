"""Training a student: a teacher is distilled into a span encoder, whose token vectors answer questions (Q4).

passages with their questions -> each passage encoded once, each question separately -> cross-entropy with
the teacher's span distributions (Q5) -> encoder, and heads for questions
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.questions import GeneratedQuestion
from pairsmith.data.squad import Question
from pairsmith.methods.quip.distillation import (
    PassageExample,
    is_read,
    labelled_question,
    sparse_cross_entropy,
    targets,
)
from pairsmith.methods.quip.passage_store import PassageStore
from pairsmith.methods.quip.training_options import StudentLabels, StudentOptions
from pairsmith.models.reader import QUESTION_TOKENS
from pairsmith.models.span_answers import answer_with_span_encoder
from pairsmith.models.span_encoder import SpanEncoder, load_span_encoder, span_logits
from pairsmith.models.token_vectors import TokenEncoder
from pairsmith.runs.seeds import generator
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.chunks import chunked, grouped, mean_of_losses
from pairsmith.training.fit import TrainedModel, TrainingTask, train_at_each_rate
from pairsmith.training.processes import Processes
from pairsmith.training.validation import validation_f1

_PASSAGES_AT_ONCE = 1_000
"""Number of passages that are tokenized at once to find the answers that the student reads."""


def grouped_by_passage(questions: Iterable[GeneratedQuestion], labels: StudentLabels) -> PassageStore:
    """Questions grouped by passage, with their training targets (Q5, Q6)."""
    return PassageStore((question.context, labelled_question(question, labels)) for question in questions)


@dataclass(frozen=True, slots=True)
class TrainedStudent(TrainedModel[SpanEncoder]):
    """A trained student, and the numbers of passages and questions that it was trained on."""

    passages: int
    questions: int


def train_student_on(
    passages: PassageStore,
    validation: Sequence[Question],
    options: StudentOptions,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainedStudent:
    """Train a student at each learning rate, and keep the one with the best F1 (Q4, Q5).

    A question is left out, with a message, if its answer lies in the part of the passage that is cut off. F1
    on ``validation`` chooses step and learning rate; without validation questions the last step at the first
    rate is kept.
    """
    if not passages:
        raise InputError("there are no questions to learn from")
    if options.negatives == "batch" and Processes.current().part_of(options.batch_size) < 2:
        raise SettingsError(
            "negatives batch joins several passages of a step, but each process would have only one; give "
            "a larger batch_size, or fewer processes"
        )
    shown = progress or Silent()
    readable: PassageStore | None = None

    def make() -> tuple[SpanEncoderWithLoss, TrainingTask[PassageExample]]:
        nonlocal readable
        encoder = load_span_encoder(
            options.base,
            device=pick_device(options.device),
            max_length=options.max_length,
            fresh_heads=True,
            seed=options.seed,
        )
        encoder.tokens.tokenizer.model_max_length = encoder.tokens.max_length
        together = options.together if options.negatives == "batch" else None
        student = SpanEncoderWithLoss(encoder, together=together, batch_tokens=options.batch_tokens)
        # Computed once, for the first learning rate.
        readable = readable or keep_readable_questions(encoder.tokens, passages, shown)
        make_row = partial(passage_in_epoch, readable, options.questions, options.seed)
        answer = partial(answer_with_span_encoder, encoder)
        measure = partial(validation_f1, answer, validation) if validation else None
        return student, TrainingTask(len(readable), make_row, student.batch, measure, "F1")

    trained = train_at_each_rate(make, options, shown, checkpoints)
    assert readable is not None  # there is at least one rate
    return TrainedStudent(
        trained.model.encoder, trained.learning_rate, trained.history, len(readable), readable.questions
    )


def keep_readable_questions(tokens: TokenEncoder, passages: PassageStore, progress: Progress) -> PassageStore:
    """The passages, with only the questions whose answer starts or ends in the part that is read.

    ``progress`` says how many questions are left out.
    """

    def readable() -> Iterator[bool]:
        with progress.task("look for answers", len(passages), "passages") as bar:
            for batch in in_batches(passages, _PASSAGES_AT_ONCE):
                tokens_read = tokens.text_tokens([passage.text for passage in batch])
                for passage, of_passage in zip(batch, tokens_read, strict=True):
                    yield from (is_read(of_passage, question) for question in passage.questions)
                bar.advance(len(batch))

    kept = np.fromiter(readable(), np.bool_)  # no count: it would stop before the bar's end
    left_out = passages.questions - int(kept.sum())
    if left_out == passages.questions:
        raise InputError(
            f"the first {tokens.max_length} tokens of the passages hold no answer to any of the "
            f"{left_out:,} questions; give a larger max_length, or shorter passages"
        )
    if left_out:
        progress.say(
            f"{left_out:,} of {passages.questions:,} questions are left out: their answers are beyond the "
            f"first {tokens.max_length} tokens of the passage, and only these are read"
        )
    return passages.only(kept)


def passage_in_epoch(
    passages: Sequence[PassageExample], most: int, seed: int, number: int, epoch: int, _: np.random.Generator
) -> PassageExample:
    """Passage ``number`` with its questions in an epoch: at most ``most``.

    If a passage has more questions, they are put into a random order, and each epoch uses the next ``most``
    of them in turn.
    """
    passage = passages[number]
    count = len(passage.questions)
    if count <= most:
        return passage
    cycle = generator(seed, "turns", number).permutation(count)
    chosen = np.sort(cycle[(epoch * most + np.arange(most)) % count])
    return PassageExample(passage.text, [passage.questions[index] for index in chosen])


class SpanEncoderWithLoss(nn.Module):
    """A span encoder; called with a batch of passages and their questions, it returns the loss (Q4, Q5).

    ``together`` is the number of consecutive passages that are joined, so that the tokens of all of them
    compete for each answer (Q6); None joins none. At most ``batch_tokens`` tokens of passages, or of
    questions, are computed at once, unless a single passage or its questions have more. None: what suits the
    device; with ``together``, all joined passages.
    """

    def __init__(
        self, encoder: SpanEncoder, *, together: int | None = None, batch_tokens: int | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.model = encoder.tokens.model
        self.heads = encoder.heads
        self._together = together
        self._batch_tokens = batch_tokens

    def batch(self, rows: Sequence[PassageExample]) -> Mapping[str, Any]:
        """The arguments of ``forward``: chunks of passages with their questions, both grouped by length."""
        for_passages = self.encoder.tokens
        for_questions = self.encoder.cut(QUESTION_TOKENS).tokens
        # Joined passages form one chunk, whose groups may be computed one by one.
        most = self._batch_tokens if self._together else None

        def features(numbers: Sequence[int]) -> dict[str, Any]:
            chunk = [rows[number] for number in numbers]
            texts = [row.text for row in chunk]
            return {
                "passages": _features(for_passages, texts, most),
                "questions": _features(for_questions, _questions(chunk), most),
                "counts": torch.tensor([len(row.questions) for row in chunk]),
                **targets(for_passages.text_tokens(texts), chunk),
            }

        if self._together:
            return {"passages": {"chunks": list(map(features, in_batches(range(len(rows)), self._together)))}}
        passage_lengths = for_passages.token_counts([row.text for row in rows])
        question_lengths = iter(for_questions.token_counts(_questions(rows)))
        lengths = [
            max(passage_length, sum(islice(question_lengths, len(row.questions))))
            for passage_length, row in zip(passage_lengths, rows, strict=True)
        ]
        return {"passages": chunked(lengths, features, self.model.device, self._batch_tokens)}

    def forward(self, passages: Mapping[str, Any]) -> dict[str, Tensor]:
        """The mean loss of a batch's questions (Q5): ``loss``, ``()`` float32.

        ``passages`` is what ``batch`` makes of the batch's rows.
        """
        chunks = passages["chunks"]
        count = sum(len(chunk["start_places"]) for chunk in chunks)
        return mean_of_losses(self._losses, chunks, self, count)

    def _losses(self, chunk: Mapping[str, Any]) -> Tensor:
        """The loss of each question, ``(questions,)`` float32: L = CE(start) + CE(end) (Q5).

        CE(start) = -Σ_i T_start(i) log p(start = i), and p(start = i) is the softmax of r(c)_i · f_start over
        the attended tokens i of the question's passage c, or of the joined passages (Q6). CE(end) likewise.
        """
        passages = self._vectors(chunk["passages"])
        masks = [group["attention_mask"].bool() for group in chunk["passages"]["chunks"]]
        attended = _in_order(masks, chunk["passages"]).to(passages.device)
        counts = chunk["counts"].cpu()
        first_tokens: Tensor | int = 0
        if self._together:
            passages, attended, counts, first_tokens = _joined_passages(passages, attended, counts)
        f_start, f_end = self.heads(self._vectors(chunk["questions"])[:, 0])
        starts, ends = span_logits(passages, f_start, f_end, counts.tolist())
        attended = attended.repeat_interleave(counts.to(attended.device), dim=0)
        start_places, end_places = (chunk[name] + first_tokens for name in ("start_places", "end_places"))
        start_loss = sparse_cross_entropy(starts, attended, start_places, chunk["start_weights"])
        end_loss = sparse_cross_entropy(ends, attended, end_places, chunk["end_weights"])
        return start_loss + end_loss

    def _vectors(self, texts: Mapping[str, Any]) -> Tensor:
        """Token vectors of n texts in their order, ``(n, longest, d)``; 0 beyond the longest of a group."""
        compute = self.encoder.token_vectors
        if self._together and self._batch_tokens and torch.is_grad_enabled():
            # Only one group's activations are held at a time: each group is recomputed in the backward pass.
            compute = partial(checkpoint, compute, use_reentrant=False)
        return _in_order([compute(group) for group in texts["chunks"]], texts)


def _joined_passages(
    passages: Tensor, attended: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Join n passages into one, so that the tokens of all compete for every question's answer (Q6).

    ``passages`` are token vectors, ``(n, tokens, d)``; ``attended`` is their mask, ``(n, tokens)``;
    ``counts`` has the number of questions of each passage, ``(n,)``. All three are returned for the one
    joined passage, that is with n = 1. The fourth result is the index of the joined passage's token at which
    each question's own passage begins, ``(questions, 1)`` int64.
    """
    passage_of_question = torch.arange(len(counts)).repeat_interleave(counts)
    first_tokens = (passage_of_question * passages.shape[1]).to(passages.device)[:, None]
    total = counts.sum(dim=0, keepdim=True)
    return passages.flatten(0, 1)[None], attended.flatten()[None], total, first_tokens


def _questions(rows: Sequence[PassageExample]) -> list[str]:
    return [question.question for row in rows for question in row.questions]


def _features(tokens: TokenEncoder, texts: Sequence[str], most: int | None) -> Mapping[str, Any]:
    """Model inputs for texts, in groups of similar length; a group has at most ``most`` tokens."""

    def features(numbers: list[int]) -> Mapping[str, Any]:
        return tokens.features([texts[number] for number in numbers])

    return grouped(tokens.token_counts(texts), features, tokens.model.device, most)


def _in_order(groups: Sequence[Tensor], texts: Mapping[str, Any]) -> Tensor:
    """Join the results of all groups, each ``(texts of the group, tokens, …)``, in the order of the texts."""
    results = [result for group in groups for result in group]
    return pad_sequence([results[place] for place in texts["order"].argsort().tolist()], batch_first=True)
