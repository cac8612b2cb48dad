"""Whether the authors' program of DINO and pairsmith have the same distributions, and write the same texts.

Their processor of logits, their loop and their program are run as they are; ours are the functions with which
``generate`` decodes. See ``beside.py``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessorList, MinLengthLogitsProcessor, TopKLogitsWarper, TopPLogitsWarper

from first_program import prepare
from pairsmith.data.tasks import load_task
from pairsmith.methods.dino.requests import TextRequest, pair_requests
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.loading import load_causal, load_model
from pairsmith.models.language.sampling import Sampling, draw_tokens
from pairsmith.models.language.steering import token_choices
from pairsmith.models.language.transformers_backend import TransformersModel
from pairsmith.runs.seeds import uniforms

SEED = 1
TEXTS = 2
DECAYS = (0.0, 100.0, 200.0)
SAMPLINGS = {"top-k 5, top-p 0.9": Sampling(), "top-p 0.9": Sampling(top_k=0)}


def compare_distributions(checkout: Path, model: str, sentences: Sequence[str]) -> dict[str, Any]:
    """The tokens that may be drawn after each token of texts of ours, by their functions and by ours.

    By sampling and decay: the number of distributions (one for each token of a text for each sentence and
    label), the largest difference of a token's probability, how many distributions allow other tokens, and
    the largest share of the probability on which the two disagree. Raw logits are the same for both.
    """
    prepare(checkout, model)
    requests = list(pair_requests(load_task("sts"), sentences, 1))
    ours = load_model(model, device="cpu")
    groups = decoded(ours, requests, 1)
    network = load_causal(model, device="cpu", dtype="float32")[1]
    end = network.config.eos_token_id
    names = [(name, decay) for name in SAMPLINGS for decay in DECAYS]
    compared = {name: {"steps": 0, "largest": 0.0, "other tokens": 0, "apart": 0.0} for name in names}
    for group in groups:
        for logits in step_logits(network, group):
            for name, decay in names:
                sampling = SAMPLINGS[name]
                theirs = their_distribution(logits, sampling, decay, end)
                own = our_distribution(logits, sampling, decay, [end])
                figures, gap = compared[name, decay], (theirs - own).abs()
                figures["steps"] += 1
                figures["largest"] = max(figures["largest"], float(gap.max()))
                figures["other tokens"] += int(((theirs > 0) != (own > 0)).any())
                figures["apart"] = max(figures["apart"], float(gap.sum() / 2))
    return {f"{name}, decay {decay:g}": figures for (name, decay), figures in compared.items()}


def step_logits(network: Any, group: Group) -> Iterator[Tensor]:
    """The logits ``(prompts, vocab)`` float32 after each prompt and the tokens so far, one step at a time."""
    rows = []
    for prompt in group.prompts:
        with torch.inference_mode():
            output = network(input_ids=torch.tensor([[*prompt, *group.tokens[:-1]]]))
        rows.append(output.logits[0, len(prompt) - 1 :].float())
    yield from torch.stack(rows, dim=1)


def their_distribution(logits: Tensor, sampling: Sampling, decay: float, end: int) -> Tensor:
    """``(vocab,)``: the end token excluded, their processor, top-k, top-p and softmax, in their order."""
    import generation  # type: ignore[import-not-found]  # theirs, on the path after ``prepare``

    steps = LogitsProcessorList([MinLengthLogitsProcessor(1, end)])
    steps.append(generation.SelfDebiasingLogitsProcessor(len(logits) - 1, decay_constant=decay))
    if sampling.top_k:
        steps.append(TopKLogitsWarper(sampling.top_k))
    steps.append(TopPLogitsWarper(sampling.top_p))
    no_tokens = torch.zeros(len(logits), 0, dtype=torch.int64)
    return torch.softmax(steps(no_tokens, logits.clone())[0], dim=-1)


def our_distribution(logits: Tensor, sampling: Sampling, decay: float, ends: list[int]) -> Tensor:
    """``(vocab,)``: the end tokens excluded, rule and truncation as in the decoder."""
    logits = logits.clone()
    logits[:, ends] = -torch.inf
    rule = partial(self_debias, decay=decay, floor=0.01)
    kept, tokens = token_choices(logits, torch.arange(len(logits))[None], rule, sampling)
    return logits.new_zeros(logits.shape[1]).scatter_(0, tokens[0], kept[0])


def decoded(model: TransformersModel, requests: Sequence[TextRequest], texts: int) -> list[Group]:
    """Each request's first tries by our decoder, in the order of the requests."""
    groups = [
        request.group(
            number, tuple(tuple(model.encode(p)) for p in (request.prompt, *request.counter_prompts))
        )
        for request in requests
        for number in range(texts)
    ]
    rule = partial(self_debias, decay=100.0, floor=0.01)
    prompts = [prompt for group in groups for prompt in group.prompts]
    decoder = MultiPromptDecoder(model, rule, Sampling(), SEED, prompts)
    for group in groups:
        decoder.add(group)
    for _ in decoder.finished():
        pass
    return groups


def compare_texts(checkout: Path, model: str, sentences: Sequence[str]) -> dict[str, Any]:
    """The texts of the authors' whole program with our random numbers, against those of our decoder.

    Both write two texts for each sentence and label. A text has the same tokens until the two differ, which
    rounding may cause where two tokens' shares of the random number meet.
    """
    modeling = prepare(checkout, model)
    task = load_task("sts")
    requests = {request.prompt: request for request in pair_requests(task, sentences, TEXTS)}
    ours = load_model(model, device="cpu")
    groups = iter(decoded(ours, list(requests.values()), TEXTS))
    own = {prompt: [next(groups) for _ in range(TEXTS)] for prompt in requests}
    wrapper = modeling.GPT2Wrapper(model, use_cuda=False)
    write = wrapper.generate_self_debiasing
    texts: dict[str, list[str]] = {}

    def noted(input_text: str, **options: Any) -> list[str]:
        """Their function, which draws with the numbers of the groups of this prompt."""
        numbers = OurNumbers([group.stream for group in own[input_text]])
        with patch.object(torch, "multinomial", numbers):
            texts[input_text] = write(input_text=input_text, **options)
        return texts[input_text]

    wrapper.generate_self_debiasing = noted
    specification = {
        "labels": {
            label: {"instruction": task.instruction(label), "counter_labels": list(task.counters(label))}
            for label in task.written_names
        }
    }
    program = modeling.DinoGenerator(
        specification, wrapper, remove_duplicates=True, remove_identical_pairs=True
    )
    rows = program.generate_dataset(list(sentences), num_entries_per_input_and_label=TEXTS)
    counts: Counter[str] = Counter()
    differing = []
    for prompt, request in requests.items():
        for number, (group, text) in enumerate(zip(own[prompt], texts[prompt], strict=True)):
            counts["texts"] += 1
            before, _, _ = text.partition('"')
            if (before if group.ending == "stop" else text) == group.text:
                counts["same"] += 1
            else:
                differing.append({"theirs": text, "ours": group.text})
            request.accept_or_reject(number, group, task)
    counts["rows of theirs"] = len(rows)
    counts["rows of ours"] = sum(len(request.texts) for request in requests.values())
    kept = {(row.text_a, row.text_b.strip(), str(row.label)) for row in rows}
    of_ours = {(r.input, text, r.label) for r in requests.values() for text in r.texts.values()}
    only = {"only theirs": sorted(kept - of_ours), "only ours": sorted(of_ours - kept)}
    return {**counts, "differing": differing, **only}


class OurNumbers:
    """Stands for ``torch.multinomial``: draws by our random numbers, of which each text has a stream.

    Only the first rows, those of the texts, have streams; the others are given the tokens of the first ones.
    """

    def __init__(self, streams: Sequence[int]) -> None:
        self._streams = np.array(streams, dtype=np.uint64)
        self._step = 0

    def __call__(self, probabilities: Tensor, num_samples: int) -> Tensor:
        """Draw a token for each row of ``probabilities``: ``(rows, 1)`` int64."""
        assert num_samples == 1
        kept, tokens = probabilities[: len(self._streams)].sort(dim=1, descending=True, stable=True)
        numbers = uniforms(SEED, self._streams, np.full(len(self._streams), self._step))
        self._step += 1
        drawn = draw_tokens(kept, tokens, torch.from_numpy(numbers))
        return drawn[torch.arange(len(probabilities)) % len(drawn)][:, None]
