"""How much likelier a language model finds a text after another one: a judge of pairs that needs no training.

The ratio log p(text | given) - log p(text) is what knowing one text says about the other (their pointwise
mutual information), so that texts that are likely anyway gain nothing by it.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.core.errors import ModelError, first_line
from pairsmith.core.model_names import DtypeName
from pairsmith.models.encode import batches_by_length, not_finite, one_thread_each, tokens_at_once
from pairsmith.models.language.loading import load_causal
from pairsmith.models.language.protocols import Prompt
from pairsmith.models.language.transformers_backend import context_of

LONGEST_ROW = 1_024
"""Tokens of a prompt and its texts that are computed together, unless the first text alone needs more."""

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LikelihoodJudge:
    """A causal language model, its tokenizer, and the most tokens of a prompt and a text together.

    ``predicting`` holds, for each thread, the places of the tokens whose predictions are wanted, as ``rows``
    and ``columns``; the model's output layer computes no others.
    """

    network: Any
    tokenizer: Any
    max_length: int
    predicting: threading.local = field(default_factory=threading.local)

    def __post_init__(self) -> None:
        """Have the output layer compute what is wanted."""

        def narrow(_: Any, args: tuple[Tensor]) -> tuple[Tensor]:
            return (args[0][self.predicting.rows, self.predicting.columns][None],)

        self.network.get_output_embeddings().register_forward_pre_hook(narrow)

    def tokens(self, text: str) -> Prompt:
        """The tokens of a text alone; what looks like a special token in it is text."""
        how = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        return tuple(self.tokenizer(text, **how)["input_ids"])

    def prompt(self, given: str, cue: str, room: int, kept: str = "") -> Prompt:
        """The tokens of ``given``, ``kept`` and the cue; ``given`` is cut so that ``room`` tokens fit."""
        begin = () if self.tokenizer.bos_token_id is None else (int(self.tokenizer.bos_token_id),)
        ending = self.tokens(cue)
        most = max(0, self.max_length - len(begin) - len(ending) - room)
        told = self.tokens(given + kept)
        if len(told) > most:
            told = self.tokens(kept)[:most]
            told = (*self.tokens(given)[: max(0, most - len(told))], *told)
        return (*begin, *told, *ending)


def load_likelihood_judge(
    model: str, *, device: str = "auto", dtype: DtypeName = "auto", max_length: int | None = None
) -> LikelihoodJudge:
    """Load a causal language model, by a name as for ``resolve_model``, to judge pairs by.

    ``max_length`` is never more than the model's context, which is the default.
    """
    from pairsmith.models.language.packing import packed

    tokenizer, network = load_causal(model, device=device, dtype=dtype)
    context = context_of(network.config, folded=False)
    judge = LikelihoodJudge(packed(network).eval(), tokenizer, min(max_length or context, context))
    _refuse_other_attention(judge, model)
    return judge


def _refuse_other_attention(judge: LikelihoodJudge, model: str) -> None:
    """Refuse a model that lets texts in one row see each other, or counts places in the row.

    A text behind another one and the same text alone have to be equally likely, but for rounding.
    """
    kind = judge.network.config.model_type
    prompt = judge.prompt("One, two, three", "\n", 0)
    first, second = (judge.tokens(text) for text in ("four five six seven eight nine ten " * 3, "a dog ran"))
    try:
        _, both = log_likelihoods(judge, [prompt, prompt], [first, second])
        ids = torch.tensor([[*prompt, *second]], device=judge.network.device)
        judge.predicting.rows = torch.zeros(len(second), dtype=torch.int64)
        judge.predicting.columns = torch.arange(len(prompt) - 1, len(prompt) + len(second) - 1)
        with torch.inference_mode():
            logits = judge.network(input_ids=ids, use_cache=False).logits[0].float()
        alone = float(logits.log_softmax(1).gather(1, ids[0, len(prompt) :, None]).sum())
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(
            f"model {model}: models of the kind {kind} cannot judge: {first_line(error)}"
        ) from error
    exact = judge.network.dtype == torch.float32
    if np.isfinite([both, alone]).all() and abs(both - alone) > (0.01 if exact else 0.05 * abs(alone)):
        raise ModelError(
            f"model {model}: models of the kind {kind} cannot read several texts behind one, as this "
            "judge does; give one of the families of Llama, Qwen, Mistral or GPT-2"
        )


def _room_for_logits(judge: LikelihoodJudge) -> int:
    """Tokens whose logits, in float32 and twice, take a quarter of a gigabyte, on other devices two."""
    numbers = 2**25 if judge.network.device.type == "cpu" else 2**28
    return max(1, numbers // int(judge.network.config.get_text_config().vocab_size))


def likelihood_ratios(
    judge: LikelihoodJudge,
    given: Sequence[str],
    texts: Sequence[str],
    *,
    cue: str,
    batch_tokens: int | None = None,
    advance: Advance = lambda _: None,
) -> NDArray[np.float32]:
    """log p(text | given) - log p(text) of n pairs, ``(n,)`` float32, in nats: a text's sum over its tokens.

    ``cue`` stands between the two texts, and before a text alone. It is not empty, as a model begins a text
    only after some token. ``given`` is cut where both are longer than the model reads, and a text at half of
    that. Each given text is computed once for all texts behind it. ``advance`` is called with numbers of
    pairs.
    """
    own = [judge.tokens(text)[: judge.max_length // 2] for text in texts]
    prompts = [judge.prompt(one, cue, len(text)) for one, text in zip(given, own, strict=True)]
    alone = judge.prompt("", cue, 0)
    return _ratios(judge, prompts, alone, own, batch_tokens, advance).astype(np.float32)


def question_likelihoods(
    judge: LikelihoodJudge,
    questions: Sequence[str],
    answers: Sequence[str],
    passages: Sequence[str],
    *,
    batch_tokens: int | None = None,
    advance: Advance = lambda _: None,
) -> NDArray[np.float32]:
    """How well n questions, their answers and passages fit, ``(n,)`` float32, in nats per token.

    The sum of two means: over the question's tokens, of log p(question | passage, answer) - log p(question);
    over the answer's, of log p(answer | passage, question). The first tells which passage a question is
    about, and hardly which answer it asks for; the second does. Passages are cut where both are too long.
    """
    cue = "\nQuestion: "
    asked = [judge.tokens(question)[: judge.max_length // 2] for question in questions]
    after = [
        judge.prompt(passage, cue, len(text), kept=f"\nAnswer: {answer}")
        for passage, answer, text in zip(passages, answers, asked, strict=True)
    ]
    ratios = _ratios(judge, after, judge.prompt("", cue, 0), asked, batch_tokens)
    spoken = [judge.tokens(f" {answer}")[: judge.max_length // 2] for answer in answers]
    prompts = [
        judge.prompt(passage, "\nAnswer:", len(text), kept=f"\nQuestion: {question}")
        for passage, question, text in zip(passages, questions, spoken, strict=True)
    ]
    told = log_likelihoods(judge, prompts, spoken, batch_tokens=batch_tokens, advance=advance)
    of_asked, of_spoken = (np.array([max(1, len(text)) for text in each]) for each in (asked, spoken))
    found: NDArray[np.float32] = (ratios / of_asked + told / of_spoken).astype(np.float32)
    return found


def _ratios(
    judge: LikelihoodJudge,
    prompts: Sequence[Prompt],
    alone: Prompt,
    texts: Sequence[Prompt],
    batch_tokens: int | None,
    advance: Advance = lambda _: None,
) -> NDArray[np.float64]:
    """log p(text | its prompt) - log p(text | alone) of n texts, ``(n,)``."""
    after = log_likelihoods(judge, prompts, texts, batch_tokens=batch_tokens, advance=advance)
    distinct = list(dict.fromkeys(texts))
    before = log_likelihoods(judge, [alone] * len(distinct), distinct, batch_tokens=batch_tokens)
    usual = dict(zip(distinct, before.tolist(), strict=True))
    ratios: NDArray[np.float64] = after - np.array([usual[text] for text in texts])
    return ratios


def log_likelihoods(
    judge: LikelihoodJudge,
    prompts: Sequence[Prompt],
    texts: Sequence[Prompt],
    *,
    batch_tokens: int | None = None,
    advance: Advance = lambda _: None,
) -> NDArray[np.float64]:
    """log p(text | prompt) of n pairs of tokens, ``(n,)`` float64: the sum over the text's tokens.

    No prompt is empty; a text without tokens has 0. A batch has at most ``batch_tokens`` tokens, padding
    included, or as many as suit the device, and no more than there is room for their logits.
    """
    device = judge.network.device
    found: NDArray[np.float64] = np.zeros(len(texts))
    rows = list(_rows(prompts, texts))
    lengths = [len(row) for row in rows]

    def begin(pool: ThreadPoolExecutor, some: list[int]) -> Future[list[list[float]]]:
        return pool.submit(_computed, judge, [rows[number] for number in some])

    most = min(batch_tokens or tokens_at_once(device), _room_for_logits(judge))
    with one_thread_each(device) as pool:
        for some, sums in pool.each(begin, batches_by_length(lengths, len(rows) or 1, most)):
            for number, of_row in zip(some, sums, strict=True):
                found[rows[number].numbers] = of_row
                advance(len(of_row))
    if not np.isfinite(found).all():
        raise not_finite("the language model gives log-probabilities")
    return found


@dataclass(slots=True)
class _Row:
    """A prompt and texts behind it, none of which sees another; ``numbers`` are the texts' own."""

    prompt: Prompt
    texts: list[Prompt] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        # A text's last token predicts nothing, so it is not computed.
        return len(self.prompt) + sum(max(0, len(text) - 1) for text in self.texts)


def _rows(prompts: Sequence[Prompt], texts: Sequence[Prompt]) -> Iterator[_Row]:
    """Rows of all texts with the same prompt, in the order of the prompts, none much too long."""
    behind: dict[Prompt, list[int]] = defaultdict(list)
    for number, prompt in enumerate(prompts):
        behind[prompt].append(number)
    for prompt, numbers in behind.items():
        row = _Row(prompt)
        for number in numbers:
            if row.texts and len(row) + len(texts[number]) > LONGEST_ROW:
                yield row
                row = _Row(prompt)
            row.texts.append(texts[number])
            row.numbers.append(number)
        yield row


def _computed(judge: LikelihoodJudge, batch: Sequence[_Row]) -> list[list[float]]:
    """The log-likelihoods of each row's texts."""
    width = max(map(len, batch))
    tokens = torch.zeros(len(batch), width, dtype=torch.int64)
    positions = torch.zeros(len(batch), width, dtype=torch.int64)
    # 0 is the prompt, n the n-th text, and -1 padding, which sees itself alone.
    part = torch.full((len(batch), width), -1)
    places: list[tuple[int, int]] = []  # of the tokens that predict
    targets: list[int] = []
    for number, row in enumerate(batch):
        end = len(row.prompt)
        tokens[number, :end] = torch.tensor(row.prompt)
        positions[number, :end] = torch.arange(end)
        part[number, :end] = 0
        for text_number, text in enumerate(row.texts, 1):
            begin, inner = end, max(0, len(text) - 1)
            end += inner
            tokens[number, begin:end] = torch.tensor(text[:-1], dtype=torch.int64)
            positions[number, begin:end] = torch.arange(len(row.prompt), len(row.prompt) + inner)
            part[number, begin:end] = text_number
            if text:
                places += [(number, len(row.prompt) - 1), *((number, i) for i in range(begin, end))]
                targets += text
    sees = _sees(part, judge.network.dtype)
    log_p = iter(_log_probabilities(judge, tokens, positions, sees, places, targets))
    return [[sum(next(log_p) for _ in text) for text in row.texts] for row in batch]


def _sees(part: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask that is added to attention scores, ``(rows, 1, tokens, tokens)``: 0 for what a token sees.

    That is the prompt and its own text so far. What it does not see has the lowest number of the format.
    """
    earlier = torch.ones(part.shape[1], part.shape[1], dtype=torch.bool).tril()
    own = part[:, :, None] == part[:, None, :]
    sees = ((part == 0)[:, None, :] | own) & earlier
    return torch.where(sees, 0.0, torch.finfo(dtype).min).to(dtype)[:, None]


def _log_probabilities(
    judge: LikelihoodJudge,
    tokens: Tensor,
    positions: Tensor,
    sees: Tensor,
    places: Sequence[tuple[int, int]],
    targets: Sequence[int],
) -> list[float]:
    """The log-probability of each target after the token at its place, ``(row, column)``."""
    device = judge.network.device
    judge.predicting.rows, judge.predicting.columns = (
        torch.tensor(places, dtype=torch.int64, device=device).reshape(-1, 2).T
    )
    with torch.inference_mode():
        logits = judge.network(
            input_ids=tokens.to(device),
            attention_mask=sees.to(device),
            position_ids=positions.to(device),
            use_cache=False,
        ).logits[0]
        goals = torch.tensor(targets, device=device, dtype=torch.int64)
        return list(logits.float().log_softmax(dim=1).gather(1, goals[:, None])[:, 0].tolist())
