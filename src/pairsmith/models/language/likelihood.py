"""Judging pairs, without training, by how much likelier one text becomes after the other (M6).

The log ratio log p(text | context) - log p(text) is the pointwise mutual information of the two texts. A text
that is likely after any context does not profit from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from pairsmith.core.arrays import Float32s, Float64s
from pairsmith.core.errors import ModelError
from pairsmith.core.model_names import DtypeName
from pairsmith.models.encode import (
    moved,
    not_finite,
    refuse_unknown_tokens,
    results_by_length,
    tokens_at_once,
)
from pairsmith.models.language.loading import load_causal
from pairsmith.models.language.prefix_batches import (
    PredictedPlaces,
    PrefixRow,
    obstacle,
    places_and_targets,
    predict_some,
    prefix_features,
    prefix_inputs,
    prefix_rows,
)
from pairsmith.models.language.protocols import Prompt
from pairsmith.models.language.transformers_backend import context_of
from pairsmith.runs.work import Advance


@dataclass(frozen=True, slots=True)
class LikelihoodJudge:
    """A causal language model that judges pairs, and its tokenizer.

    ``max_length`` is the largest number of tokens of a prompt and a text together. ``predictions`` holds the
    positions at which the model computes logits.
    """

    network: Any
    tokenizer: Any
    max_length: int
    predictions: PredictedPlaces

    def tokens(self, text: str) -> Prompt:
        """The tokens of a text, without special tokens; a special token's name in the text counts as text."""
        how = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        tokens = tuple(self.tokenizer(text, **how)["input_ids"])
        refuse_unknown_tokens(self.network.config, [tokens])
        return tokens

    def prompt(self, context: str, cue: str, reserve: int) -> Prompt:
        """The tokens of ``context`` and ``cue``; ``context`` is cut so that ``reserve`` more tokens fit."""
        prefix, lead = self.prefix_and_lead(context, "", cue, reserve)
        return (*prefix, *lead)

    def prefix_and_lead(self, context: str, tail: str, cue: str, reserve: int) -> tuple[Prompt, Prompt]:
        """The tokens of ``context``, and those of ``tail`` and ``cue``, cut so that ``reserve`` more fit.

        ``context`` is cut first, ``tail`` only if it is too long by itself. The room that a cut context
        leaves is rounded up to eighths of ``max_length``, so that texts of different lengths follow the same
        prefix, which is computed once.
        """
        begin = () if self.tokenizer.bos_token_id is None else (int(self.tokenizer.bos_token_id),)
        ending = self.tokens(cue)
        room = self.max_length - len(begin) - len(ending)
        body, behind = self.tokens(context), self.tokens(tail)[: max(0, room - reserve)]
        reserve += len(behind)
        if len(body) > room - reserve:
            step = max(1, self.max_length // 8)
            body = body[: max(0, room - -(-reserve // step) * step)]
        return (*begin, *body), (*behind, *ending)


def load_likelihood_judge(
    model: str, *, device: str = "auto", dtype: DtypeName = "auto", max_length: int | None = None
) -> LikelihoodJudge:
    """Load a causal language model that judges pairs; its name is one that ``resolve_model`` accepts.

    ``max_length`` is at most the model's context, which is the default.
    """
    from pairsmith.models.language.packed_weights import packed

    tokenizer, network = load_causal(model, device=device, dtype=dtype)
    context = context_of(network.config, shared=False)
    network = packed(network).eval()
    if reason := obstacle(network):
        raise ModelError(
            f"model {model}: models of the kind {network.config.model_type} cannot read several texts behind "
            f"one, as this judge does: {reason}; give one of the families of Llama, Qwen, Mistral or GPT-2"
        )
    return LikelihoodJudge(network, tokenizer, min(max_length or context, context), predict_some(network))


def _room_for_logits(judge: LikelihoodJudge) -> int:
    """The number of tokens whose logits are computed at once.

    Two float32 copies of them take a quarter of a gigabyte on a CPU, two gigabytes on other devices.
    """
    numbers = 2**25 if judge.network.device.type == "cpu" else 2**28
    return max(1, numbers // int(judge.network.config.get_text_config().vocab_size))


def likelihood_ratios(
    judge: LikelihoodJudge,
    contexts: Sequence[str],
    texts: Sequence[str],
    *,
    cue: str,
    batch_tokens: int | None = None,
    advance: Advance = lambda _: None,
) -> Float32s:
    """log p(text | context) - log p(text) of n pairs (M6), ``(n,)`` float32, in nats, summed over tokens.

    ``cue`` stands between the two texts, and before the text in log p(text). It is not empty, as a model can
    predict a text only after at least one token. A text is cut to half of what the model reads, and a context
    to what is left beside its text. A context is computed once for all texts for which it is cut at the same
    token. ``advance`` is called with the number of pairs that are computed.
    """
    own = [judge.tokens(text)[: judge.max_length // 2] for text in texts]
    prompts = [judge.prompt(one, cue, len(text)) for one, text in zip(contexts, own, strict=True)]
    after = log_likelihoods(judge, prompts, own, batch_tokens=batch_tokens, advance=advance)
    return (after - _alone(judge, cue, own, batch_tokens)).astype(np.float32)


def question_likelihoods(
    judge: LikelihoodJudge,
    questions: Sequence[str],
    answers: Sequence[str],
    passages: Sequence[str],
    *,
    batch_tokens: int | None = None,
    advance: Advance = lambda _: None,
) -> Float32s:
    """How well each question q, answer a and passage c fit together (M6): ``(n,)`` float32, nats per token.

    The score is (log p(q | c, a) - log p(q)) / |q| + log p(a | c, q) / |a|, with the lengths |q| and |a| in
    tokens. The first term tells which passage the question is about, but hardly which answer it asks for; the
    second term does. A passage is cut if it does not fit beside the other texts. It is computed once for all
    its questions and answers that fit into a row. The formula is our own, not the paper's.
    """
    cue = "\nQuestion: "
    question_tokens = [judge.tokens(question)[: judge.max_length // 2] for question in questions]
    after = [
        judge.prefix_and_lead(passage, f"\nAnswer: {answer}", cue, len(text))
        for passage, answer, text in zip(passages, answers, question_tokens, strict=True)
    ]
    answer_tokens = [judge.tokens(f" {answer}")[: judge.max_length // 2] for answer in answers]
    prompts = [
        judge.prefix_and_lead(passage, f"\nQuestion: {question}", "\nAnswer:", len(text))
        for passage, question, text in zip(passages, questions, answer_tokens, strict=True)
    ]
    prefixes, leads = ([pair[part] for pair in (*after, *prompts)] for part in (0, 1))
    texts, done = [*question_tokens, *answer_tokens], 0

    def advance_pairs(count: int) -> None:
        nonlocal done
        advance((done + count) // 2 - done // 2)
        done += count

    both = log_likelihoods(judge, prefixes, texts, leads, batch_tokens=batch_tokens, advance=advance_pairs)
    of_questions, of_answers = np.split(both, 2)
    ratios = of_questions - _alone(judge, cue, question_tokens, batch_tokens)
    question_lengths, answer_lengths = (
        np.array([max(1, len(text)) for text in tokens]) for tokens in (question_tokens, answer_tokens)
    )
    likelihoods: Float32s = (ratios / question_lengths + of_answers / answer_lengths).astype(np.float32)
    return likelihoods


def _alone(judge: LikelihoodJudge, cue: str, texts: Sequence[Prompt], batch_tokens: int | None) -> Float64s:
    """log p(text) of n texts after the cue alone, ``(n,)``; each distinct text is computed once."""
    distinct = list(dict.fromkeys(texts))
    prompts = [judge.prompt("", cue, 0)] * len(distinct)
    likelihoods = log_likelihoods(judge, prompts, distinct, batch_tokens=batch_tokens)
    by_text = dict(zip(distinct, likelihoods.tolist(), strict=True))
    return np.array([by_text[text] for text in texts])


def log_likelihoods(
    judge: LikelihoodJudge,
    prefixes: Sequence[Prompt],
    texts: Sequence[Prompt],
    leads: Sequence[Prompt] | None = None,
    *,
    batch_tokens: int | None = None,
    advance: Advance = lambda _: None,
) -> Float64s:
    """log p(text | prefix, lead) of n tokenized texts, summed over tokens: ``(n,)`` float64, at most 0.

    A prefix is computed once for all leads and texts after it. A prefix may be empty only if there is a lead.
    The log-likelihood of a text without tokens is 0. A batch has at most ``batch_tokens`` tokens, padding
    included, or as many as suit the device, and never more than there is room for their logits.
    """
    device = judge.network.device
    likelihoods: Float64s = np.zeros(len(texts))
    leads = leads or [()] * len(texts)
    # A text's last token predicts nothing, so it is not computed.
    behind = [(*lead, *text[:-1]) for lead, text in zip(leads, texts, strict=True)]
    rows = list(prefix_rows(prefixes, behind))
    for batch, sums in results_by_length(
        list(map(len, rows)),
        lambda batch: [rows[row] for row in batch],
        partial(_of_batch, judge, texts=texts, leads=leads),
        device,
        batch_tokens=min(batch_tokens or tokens_at_once(device), _room_for_logits(judge)),
    ):
        likelihoods[[number for row in batch for number in rows[row].numbers]] = sums
        advance(len(sums))
    if not np.isfinite(likelihoods).all():
        raise not_finite("the language model gives log-probabilities")
    return likelihoods


def _of_batch(
    judge: LikelihoodJudge, batch: Sequence[PrefixRow], texts: Sequence[Prompt], leads: Sequence[Prompt]
) -> list[float]:
    """The log-likelihoods of the texts in a batch of rows, row after row."""
    device = judge.network.device
    places, targets = places_and_targets(batch, texts, leads)
    judge.predictions.places = torch.tensor(places, dtype=torch.int64, device=device).reshape(-1, 2)
    with torch.inference_mode():
        inputs = prefix_inputs(moved(prefix_features(batch), device), judge.network)
        logits = judge.network(**inputs, use_cache=False).logits[0]
        tokens = torch.tensor(targets, device=device, dtype=torch.int64)
        log_p = logits.float().log_softmax(dim=1).gather(1, tokens[:, None])[:, 0]
    of_tokens = iter(log_p.tolist())
    return [sum(next(of_tokens) for _ in texts[number]) for row in batch for number in row.numbers]
