"""How fast texts become vectors: ours, and SentenceTransformer.encode at its defaults.

python benchmarks/encoding.py --json FILE
"""

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from common import write
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder

EXAMPLES = Path(__file__).parent.parent / "examples" / "sentences.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--model", default="embedded:all-minilm-l6-v2")
    parser.add_argument("--texts", type=Path, help="A text a line; without it texts of 1 to 40 sentences.")
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    texts = read(args.texts, args.count)
    plain = load_sentence_encoder(args.model, device="cpu")
    short = load_sentence_encoder(args.model, device="cpu", dtype="bfloat16")
    plain.encode(texts[:32])
    encode_texts(short, texts[:32])
    rounds: list[dict[str, float]] = []
    for _ in range(args.rounds):
        begun = perf_counter()
        expected = plain.encode(texts)
        theirs = perf_counter() - begun
        begun = perf_counter()
        vectors = encode_texts(short, texts)
        ours_bfloat16 = perf_counter() - begun
        begun = perf_counter()
        encode_texts(plain, texts)
        ours_float32 = perf_counter() - begun
        cosines = (unit(expected) * unit(vectors)).sum(axis=1)
        rounds.append(
            {
                "SentenceTransformer.encode": len(texts) / theirs,
                "ours, bfloat16": len(texts) / ours_bfloat16,
                "ours, float32": len(texts) / ours_float32,
                "least cosine": float(cosines.min()),
            }
        )
        print({name: round(value, 5) for name, value in rounds[-1].items()}, flush=True)
    ratio = median(r["ours, bfloat16"] / r["SentenceTransformer.encode"] for r in rounds)
    results: dict[str, Any] = {
        "texts per second": rounds,
        "ratio": ratio,
        "ratio in float32": median(r["ours, float32"] / r["SentenceTransformer.encode"] for r in rounds),
        "characters of a text, 5 %, 50 %, 95 %": [
            float(length) for length in np.percentile([len(text) for text in texts], [5, 50, 95])
        ],
    }
    print("ratio", round(ratio, 2), "in float32", round(results["ratio in float32"], 2))
    if args.json:
        settings = {"model": args.model, "texts": str(args.texts and args.texts.name), "count": args.count}
        write(args.json, {"settings": settings, "results": results})


def read(file: Path | None, count: int) -> list[str]:
    """The texts of a file, or sentences put together so that many texts are short and a few long."""
    if file:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()][:count]
    sentences = EXAMPLES.read_text(encoding="utf-8").splitlines()
    rng = np.random.default_rng(0)
    lengths = np.minimum(40, 1 + rng.pareto(1.0, size=count).astype(int))
    return [" ".join(sentences[i] for i in rng.integers(len(sentences), size=n)) for n in lengths]


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
