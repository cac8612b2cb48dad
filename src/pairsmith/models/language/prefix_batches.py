"""Batches in which several texts share a row with their common prefix, which is thus computed once.

A mask hides the texts of a row from each other. Apart from rounding, the hidden states of a text are those it
has alone after the prefix: its tokens have the same positions, and attend to the prefix and to the text only.
"""

import threading
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pairsmith.core.errors import ModelError, first_line
from pairsmith.models.encode import moved

LONGEST_ROW = 1_024
"""Longest row in tokens, of a prefix and its texts; or twice the length of the prefix if that is more."""


@dataclass(slots=True)
class PrefixRow:
    """The tokens of a prefix and of the texts after it.

    ``seen`` has for each text the number of the prefix's tokens that it follows: all of them or the first
    few. ``numbers`` has for each text its index among the texts that ``prefix_rows`` was called with.
    """

    prefix: Sequence[int]
    texts: list[Sequence[int]] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.prefix) + sum(map(len, self.texts))

    def starts(self) -> list[int]:
        """The place in the row of each text's first token."""
        places = [len(self.prefix)]
        for text in self.texts:
            places.append(places[-1] + len(text))
        return places[:-1]


def prefix_rows(
    prefixes: Sequence[Sequence[int]],
    texts: Sequence[Sequence[int]],
    groups: Sequence[Hashable] | None = None,
) -> Iterator[PrefixRow]:
    """Rows of n texts and their prefixes, group after group; each text is in one row.

    Texts share a row if they are of the same group and their prefixes are equal, or one is the beginning of
    the other; a document, for example, is cut more if a longer text follows it. Without ``groups``, texts
    with equal prefixes form a group. For the length of a row see ``LONGEST_ROW``; it is exceeded only if the
    first text of the row needs more.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for number, group in enumerate(groups or map(tuple, prefixes)):
        members[group].append(number)
    for numbers in members.values():
        common = prefixes[max(numbers, key=lambda number: len(prefixes[number]))]
        most = max(LONGEST_ROW, 2 * len(common))
        row = PrefixRow(common)
        for number in numbers:
            seen, text = len(prefixes[number]), texts[number]
            if list(common[:seen]) != list(prefixes[number]):
                yield PrefixRow(prefixes[number], [text], [seen], [number])
                continue
            if row.texts and len(row) + len(text) > most:
                yield row
                row = PrefixRow(common)
            row.texts.append(text)
            row.seen.append(seen)
            row.numbers.append(number)
        if row.texts:
            yield row


def prefix_features(rows: Sequence[PrefixRow]) -> dict[str, Any]:
    """Features of n rows, padded on the right to the longest; ``prefix_inputs`` makes model inputs of them.

    ``input_ids``, ``position_ids``, ``part`` and ``seen`` are ``(n, longest)`` int64. ``part`` is 0 in the
    prefix, k in the k-th text and -1 in padding; ``seen`` is the number of the prefix's tokens that a token
    attends to. ``alone`` is a bool: whether every row has at most one text.
    """
    shape = (len(rows), max(map(len, rows)))
    tokens, positions = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    part, seen = torch.full(shape, -1), torch.zeros(shape, dtype=torch.int64)
    for number, row in enumerate(rows):
        end = len(row.prefix)
        tokens[number, :end] = torch.as_tensor(row.prefix, dtype=torch.int64)
        positions[number, :end] = torch.arange(end)
        part[number, :end] = 0
        seen[number, :end] = end
        texts = zip(row.texts, row.seen, row.starts(), strict=True)
        for text_number, (text, behind, begin) in enumerate(texts, 1):
            columns = slice(begin, begin + len(text))
            tokens[number, columns] = torch.as_tensor(text, dtype=torch.int64)
            positions[number, columns] = torch.arange(behind, behind + len(text))
            part[number, columns] = text_number
            seen[number, columns] = behind
    alone = all(row.seen in ([], [len(row.prefix)]) for row in rows)
    return {"input_ids": tokens, "position_ids": positions, "part": part, "seen": seen, "alone": alone}


def prefix_inputs(features: Mapping[str, Any], network: Any) -> dict[str, Any]:
    """Inputs of a causal model for the features of a batch of rows, on their device.

    ``attention_mask`` is ``(n, 1, longest, longest)`` in the model's dtype: 0 where a token attends, the
    lowest number of the dtype elsewhere. If layers are of several kinds, it is a mapping with such a mask for
    each kind. It is made only now, as the masks of all chunks of a step would not fit into memory. Rows of
    one text need neither mask nor positions, as no token attends to the padding after it; their mask is all
    ones.
    """
    if features["alone"]:
        return unmasked(features["input_ids"])
    part, seen, positions = features["part"], features["seen"], features["position_ids"]
    earlier = torch.ones(part.shape[1], part.shape[1], dtype=torch.bool, device=part.device).tril()
    of_prefix = (part == 0)[:, None, :] & (positions[:, None, :] < seen[:, :, None])
    attends = (of_prefix | (part[:, :, None] == part[:, None, :])) & earlier
    return {
        "input_ids": features["input_ids"],
        "position_ids": positions,
        "attention_mask": _masks(attends, positions, network),
    }


def unmasked(ids: Tensor) -> dict[str, Tensor]:
    """Inputs of a causal model whose tokens attend to all earlier ones; ``ids`` is ``(n, longest)`` int64.

    Without the mask of ones, transformers would warn of padding.
    """
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _masks(attends: Tensor, positions: Tensor, network: Any) -> Any:
    """The attention mask, or one for each kind of layer if some have a sliding window."""
    text = network.config.get_text_config()
    window = getattr(text, "sliding_window", None)
    kinds = set(getattr(text, "layer_types", None) or ())

    def mask(within: int | None) -> Tensor:
        seen = attends
        if within:
            seen = attends & (positions[:, :, None] - positions[:, None, :] < within)
        return torch.where(seen, 0.0, torch.finfo(network.dtype).min).to(network.dtype)[:, None]

    if "sliding_attention" in kinds:
        return {kind: mask(window if kind == "sliding_attention" else None) for kind in kinds}
    return mask(window if not kinds and getattr(text, "use_sliding_window", True) else None)


def places_and_targets(
    rows: Sequence[PrefixRow], texts: Sequence[Sequence[int]], leads: Sequence[Sequence[int]] | None = None
) -> tuple[list[tuple[int, int]], list[int]]:
    """The row and the column at which each token of the texts is predicted, and these tokens.

    ``texts`` are complete. The rows hold them without their last token, which predicts nothing, and after
    their ``leads``, if there are any; tokens of leads are not predicted.
    """
    places: list[tuple[int, int]] = []
    targets: list[int] = []
    for number, row in enumerate(rows):
        for which, seen, start in zip(row.numbers, row.seen, row.starts(), strict=True):
            if text := texts[which]:
                lead = len(leads[which]) if leads else 0
                columns = [seen - 1, *range(start, start + lead + len(text) - 1)]
                places += [(number, column) for column in columns[lead:]]
                targets += text
    return places, targets


class PredictedPlaces(threading.local):
    """The places at which a model predicts next tokens, ``(n, 2)`` int64: row and column; None: all."""

    places: Tensor | None = None


def predict_some(network: Any) -> PredictedPlaces:
    """Make a causal model compute logits only at the places that are set in the returned ``PredictedPlaces``.

    The logits are then ``(1, n, vocabulary)``. Each thread sets its own places.
    """
    predictions = PredictedPlaces()

    def narrow(_: Any, args: tuple[Tensor]) -> tuple[Tensor]:
        if predictions.places is None:
            return args
        rows, columns = predictions.places.T
        return (args[0][rows, columns][None],)

    layer = network.get_output_embeddings()
    hook = layer.register_forward_pre_hook(narrow) if layer is not None else None
    ids = torch.tensor([[1, 2, 3, 4]], device=next(network.parameters()).device)
    with torch.inference_mode():
        of_all = network(input_ids=ids, use_cache=False).logits
        predictions.places = torch.tensor([[0, 3], [0, 1]], device=ids.device)
        of_some = network(input_ids=ids, use_cache=False).logits
        predictions.places = None
    same = of_some.shape[:2] == (1, 2) and torch.allclose(of_some, of_all[:, [3, 1]], rtol=0.05, atol=0.1)
    if hook is None or not same:
        raise ModelError(
            f"models of the kind {network.config.model_type} compute the logits of all tokens; give one of "
            "the families of Llama, Qwen, Mistral or GPT-2"
        )
    return predictions


def obstacle(network: Any) -> str | None:
    """The reason why a model cannot compute several texts after one prefix together; None if it can.

    The reason may be that the model ignores the mask or the positions in its inputs.
    """
    text = network.config.get_text_config()
    if "local" in getattr(text, "attention_layers", ()):  # GPT-Neo's windows count tokens of the row
        return "some of its layers see the last few tokens only"
    prompts = [[(7 * i + n) % text.vocab_size for i in range(8)] for n in range(3)]
    first, others = prompts[0], prompts[1:]
    row = PrefixRow(first, [*others], [len(first), 5])
    base = network.base_model
    device = next(network.parameters()).device
    try:
        with torch.inference_mode():
            features = moved(prefix_features([row]), device)
            both = base(**prefix_inputs(features, network), use_cache=False).last_hidden_state[0]
            for text_tokens, behind, start in zip(row.texts, row.seen, row.starts(), strict=True):
                ids = torch.tensor([[*first[:behind], *text_tokens]], device=device)
                alone = base(**unmasked(ids), use_cache=False).last_hidden_state
                alone = alone[0, behind:].float()
                away = (both[start : start + len(text_tokens)].float() - alone).norm() / alone.norm()
                if not away <= (1e-3 if network.dtype == torch.float32 else 0.05):  # or no number
                    return "a text behind a shared prefix is not read as it is alone"
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        return first_line(error)
    return None
