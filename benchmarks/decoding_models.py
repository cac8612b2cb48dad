"""Models in the shapes of real ones, with random weights, for measuring decoding without any download."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from zlib import crc32

import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from pairsmith.core.model_names import resolve_model
from pairsmith.models.language.loading import load_model
from pairsmith.models.language.packed_weights import packed
from pairsmith.models.language.transformers_backend import TransformersModel

STOP_RATE = 1 / 22
"""Share of the tokens that hold the quotation mark. Texts that end within 40 tokens then have 14.6 of them
in the mean, the last one included, and 16 % do not end."""

LOGIT_SPREAD = 4.0
"""Standard deviation of the logits: the likeliest of 50,000 tokens then has about a third of the mass, as in
a trained model, so that combining and truncating have real work."""

# With rotary positions and weights as small as usual, the next token would hang on the last one alone, and
# half of the texts would go round in circles without a stop; larger weights make the context count.
SHAPES: dict[str, Any] = {
    "gpt2": GPT2Config(tie_word_embeddings=False),
    "gpt2-medium": GPT2Config(n_embd=1024, n_layer=24, n_head=16, tie_word_embeddings=False),
    "llama-0.5b": LlamaConfig(
        vocab_size=32_000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=26,
        num_attention_heads=16, num_key_value_heads=4, max_position_embeddings=2048,
        tie_word_embeddings=False, initializer_range=0.05,
    ),
}  # fmt: skip


class MadeTokenizer:
    """Numbers for pieces of text and made words for numbers; about as many tokens as GPT-2's makes."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        every = round(1 / STOP_RATE)
        self._texts = [f' w{i}"' if i % every == every - 1 else f" w{i}" for i in range(vocab)]

    def __len__(self) -> int:
        return self._vocab

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        """Up to six letters, or one other sign, are a token."""
        pieces = re.findall(r" ?\w{1,6}|\W", text)
        return {"input_ids": [crc32(piece.encode()) % self._vocab for piece in pieces]}

    def decode(self, tokens: Iterable[int], **_: object) -> str:
        """Made words."""
        return "".join(self._texts[token] for token in tokens)

    def batch_decode(self, rows: Iterable[Iterable[int]], **_: object) -> list[str]:
        """The same of many rows."""
        return [self.decode(row) for row in rows]


def build(shape: str, dtype: torch.dtype, device: str) -> tuple[Any, TransformersModel]:
    """A model as transformers has it, and the same for decoding by us; of one of ``SHAPES``, or by name."""
    if shape not in SHAPES:
        loaded = load_model(shape, device=device, dtype=str(dtype).removeprefix("torch."))  # type: ignore[arg-type]
        plain = AutoModelForCausalLM.from_pretrained(resolve_model(shape), dtype=dtype).to(device).eval()
        return plain, loaded
    config = SHAPES[shape]
    torch.manual_seed(0)
    with torch.device(device):
        network = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    with torch.no_grad():  # the last norm's output has length sqrt(width)
        network.lm_head.weight.normal_(std=LOGIT_SPREAD / config.hidden_size**0.5)
    network.generation_config.eos_token_id = None
    tokenizer = MadeTokenizer(config.vocab_size)
    return network, TransformersModel(packed(deepcopy(network)), tokenizer, name=shape, revision="random")


@dataclass(slots=True)
class Counts:
    """What went through a model: tokens through the layers, and rows through the head."""

    tokens: int = 0
    rows: int = 0


@contextmanager
def counted(model: Any) -> Iterator[Counts]:
    """Count what goes through a model of transformers within the block."""
    counts = Counts()

    def tokens(_: Any, args: tuple[torch.Tensor, ...]) -> None:
        counts.tokens += args[0].numel() // args[0].shape[-1]

    def rows(_: Any, __: Any, logits: torch.Tensor) -> None:
        counts.rows += logits.numel() // logits.shape[-1]

    body = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))
    hooks = [
        body[0].register_forward_pre_hook(tokens),
        model.get_output_embeddings().register_forward_hook(rows),
    ]
    try:
        yield counts
    finally:
        for hook in hooks:
            hook.remove()


def products(network: Any, counts: Counts) -> float:
    """Floating-point operations of the matrix products with weights; attention's are left out."""
    body, head = weights(network)
    return 2.0 * (body * counts.tokens + head * counts.rows)


def weights(network: Any) -> tuple[int, int]:
    """Numbers in the matrices of all layers, and in that of the head."""
    body = next(m for m in network.modules() if isinstance(m, torch.nn.ModuleList))
    inside = sum(w.numel() for w in body.parameters() if w.ndim == 2)
    return inside, network.get_output_embeddings().weight.numel()


def matrix_rate(dtype: torch.dtype, device: str) -> float:
    """The best of several products of two 2048 x 2048 matrices, in operations per second."""
    a, b = (torch.randn(2048, 2048, device=device).to(dtype) for _ in range(2))
    return max(_rate_once(a, b) for _ in range(8))


def _rate_once(a: torch.Tensor, b: torch.Tensor) -> float:
    begun = perf_counter()
    for _ in range(3):
        a @ b
    if a.device.type == "cuda":
        torch.cuda.synchronize()
    return 3 * 2 * 2048**3 / (perf_counter() - begun)
