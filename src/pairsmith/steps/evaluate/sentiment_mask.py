"""Sentiment baseline: does a masked language model fill "It was [MASK]." with great or terrible (Q11)?"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.errors import ModelError
from pairsmith.core.progress import Progress
from pairsmith.models.encode import batches_by_length, one_thread_each, tokens_at_once
from pairsmith.models.heads import load_with_head
from pairsmith.steps.evaluate.sentiment_questions import Judged, Scores
from pairsmith.steps.evaluate.settings import EvaluateSentimentSettings

WORDS = ("terrible", "great")
_BEHIND = " It was {mask}."


def judge_by_mask(
    settings: EvaluateSentimentSettings, texts: Sequence[str], neutral: Sequence[str], progress: Progress
) -> Judged:
    """The log probabilities of both words after each text, as the scores of one prompt without rationales."""
    network, tokenizer, context = load_with_head(
        settings.model, "masked language modelling", device=settings.device, dtype=settings.dtype
    )
    longest = min(settings.max_length or context, context)
    words = [_token(settings.model, tokenizer, word) for word in WORDS]
    behind = _BEHIND.format(mask=tokenizer.mask_token)
    room = longest - len(tokenizer(behind)["input_ids"])

    def scored(features: Mapping[str, Tensor]) -> Scores:
        with torch.inference_mode():
            logits = network(**{name: value.to(network.device) for name, value in features.items()}).logits
            at = (features["input_ids"] == tokenizer.mask_token_id).to(logits.device)
            found: Scores = logits[at].float().log_softmax(dim=1)[:, words].double().cpu().numpy()
            return found

    def begin(pool: ThreadPoolExecutor, some: Sequence[str]) -> Future[Scores]:
        whole = [text + behind for text in some]
        return pool.submit(scored, tokenizer(whole, padding=True, return_tensors="pt"))

    def score(some: Sequence[str]) -> Scores:
        cut = [_cut(tokenizer, text, room) for text in some]
        lengths = [len(ids) for ids in tokenizer(cut)["input_ids"]]
        found = np.empty((len(cut), 2))
        most = settings.batch_tokens or tokens_at_once(network.device)
        batches = batches_by_length(lengths, len(cut), most)
        with progress.task("judge", len(cut), "texts") as bar, one_thread_each(network.device) as pool:
            for rows, both in pool.each(lambda pool, rows: begin(pool, [cut[row] for row in rows]), batches):
                found[rows] = both
                bar.advance(len(rows))
        return found

    return Judged(score(texts)[None], score(neutral).mean(axis=0)[None], [""] * len(texts))


def _token(model: str, tokenizer: Any, word: str) -> int:
    """The token id of a word in the middle of a sentence."""
    ids: list[int] = tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise ModelError(f"model {model}: {word!r} is not one of its tokens, so it cannot fill the mask")
    return ids[0]


def _cut(tokenizer: Any, text: str, room: int) -> str:
    """The text cut to ``room`` tokens, without any mask token in it."""
    text = text.replace(tokenizer.mask_token, " ")  # so that the rest forms no new mask
    encoded = tokenizer(
        text,
        truncation=True,
        max_length=max(1, room),
        return_offsets_mapping=True,
        add_special_tokens=False,
    )
    offsets = encoded["offset_mapping"]
    return text[: offsets[-1][1]] if offsets else ""
