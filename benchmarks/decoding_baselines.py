"""What people would use instead: the original program's plain way, transformers' ``generate``, llama.cpp."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import torch
from torch import Tensor
from transformers import DynamicCache

from pairsmith.models.language.decoder import Group
from pairsmith.models.language.sampling import Sampling
from pairsmith.models.language.transformers_backend import TransformersModel


@torch.inference_mode()
def one_label_at_a_time(
    network: Any,
    model: TransformersModel,
    prompts: Sequence[tuple[int, ...]],
    texts: int,
    sampling: Sampling,
    decay: float,
) -> list[str | None]:
    """Texts for one input and one label, as the method's first program writes them; None without an end.

    Every text has a row for its prompt and one for each counter-prompt; rows are padded on the left, go
    to the token limit, and each text's distributions are combined and truncated over the whole
    vocabulary, one text after the other.
    """
    device = network.device
    rows = [prompt for _ in range(texts) for prompt in prompts]
    width = max(map(len, rows))
    tokens = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    cache = DynamicCache()
    drawn: list[list[int]] = [[] for _ in range(texts)]
    for _ in range(sampling.max_tokens):
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        output = network(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            logits_to_keep=1,
        )
        logits = output.logits[:, -1].float()
        for text in range(texts):
            first = text * len(prompts)
            token = _draw(logits[first : first + len(prompts)], sampling, decay)
            drawn[text].append(token)
        new = [drawn[text][-1] for text in range(texts) for _ in prompts]
        tokens = torch.tensor(new, device=device)[:, None]
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
    return [_before_stop(model.decode(d), sampling.stop) for d in drawn]


def _draw(logits: Tensor, sampling: Sampling, decay: float) -> int:
    """One token from the main prompt's and the counter-prompts' logits, ``(prompts, vocab)``."""
    p = torch.softmax(logits[0], dim=-1)
    if len(logits) > 1 and decay:
        delta = p - torch.softmax(logits[1:], dim=-1).max(dim=0).values
        p = p * torch.where(delta < 0, torch.exp(decay * delta).clamp(min=0.01), torch.ones_like(delta))
        p = p / p.sum()
    if sampling.top_k:
        p = torch.where(p < p.topk(sampling.top_k).values[-1], torch.zeros_like(p), p)
    if sampling.top_p < 1:
        ordered, numbers = p.sort(descending=True)
        ordered = ordered / ordered.sum()
        ordered[ordered.cumsum(0) - ordered >= sampling.top_p] = 0
        p = torch.zeros_like(p).scatter(0, numbers, ordered)
    return int(torch.multinomial(p, 1))


def _before_stop(text: str, stop: str) -> str | None:
    text, stopped, _ = text.partition(stop)
    return text if stopped else None


@torch.inference_mode()
def generate_in_batches(
    network: Any, model: TransformersModel, groups: Sequence[Group], sampling: Sampling, size: int
) -> list[str | None]:
    """Texts by ``generate`` of transformers for the main prompts alone, sorted by length."""
    stops = sorted(model.tokens_with(sampling.stop))
    ordered = sorted(groups, key=lambda group: len(group.main))
    texts: list[str | None] = []
    for start in range(0, len(ordered), size):
        prompts = [group.main for group in ordered[start : start + size]]
        width = max(map(len, prompts))
        tokens = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=network.device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=network.device)
        output = network.generate(
            input_ids=tokens,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=sampling.top_k or 0,
            top_p=sampling.top_p,
            max_new_tokens=sampling.max_tokens,
            eos_token_id=stops,
            pad_token_id=0,
        )
        texts += [_before_stop(model.decode(row[width:].tolist()), sampling.stop) for row in output]
    return texts


@contextmanager
def llama_server(file: Path, slots: int) -> Iterator[str]:
    """The address of llama.cpp's server of a GGUF file, with so many slots and one thread."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    script = Path(__file__).resolve().parent.parent / "tests" / "llama_server.py"
    command = [sys.executable, str(script), str(file), port, str(slots)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it listens
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def by_llama_server(
    address: str, groups: Sequence[Group], sampling: Sampling, slots: int
) -> list[str | None]:
    """Texts by llama.cpp's server for the main prompts alone, as many requests at once as it has slots."""

    def text(group: Group) -> str | None:
        about = {
            "prompt": list(group.main),
            "n_predict": sampling.max_tokens,
            "stop": [sampling.stop],
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": 0.0,
            "temperature": 1.0,
        }
        request = Request(
            f"{address}/completion", json.dumps(about).encode(), {"Content-Type": "application/json"}
        )
        with urlopen(request, timeout=600) as answer:
            reply = json.load(answer)
        return str(reply["content"]) if reply["stop_type"] == "word" else None

    with ThreadPoolExecutor(slots) as pool:
        return list(pool.map(text, sorted(groups, key=lambda group: group.main)))
