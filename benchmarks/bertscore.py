"""Our BERTScore against that of the package bert_score, without idf and rescaling, on pairs of MRPC.

python benchmarks/bertscore.py --data DATA [--json FILE]

Wants the package bert_score, which is no dependency of the project: pip install bert-score
"""

import argparse
import importlib
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import write
from pairsmith.core.model_names import MINILM
from pairsmith.data.paraphrases import Paraphrase, read_paraphrases
from pairsmith.metrics.bertscore import BertScorer
from pairsmith.models.token_vectors import load_token_encoder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--layers", type=int, nargs="*", default=[3, 6])
    parser.add_argument("--pairs", type=int, default=500)
    args = parser.parse_args()
    paraphrases = read_paraphrases(args.data / "mrpc" / "msr_paraphrase_test.txt")
    pairs = list(islice(paraphrases, args.pairs))
    differences = {layer: difference(pairs, layer) for layer in args.layers}
    print(differences)
    if args.json:
        settings = {"pairs": len(pairs), "model": MINILM}
        write(args.json, {"settings": settings, "results": {"largest difference": differences}})


def difference(pairs: list[Paraphrase], layer: int) -> float:
    """The largest one between F of the two, by the vectors of a layer."""
    package: Any = importlib.import_module("bert_score.utils")
    encoder = load_token_encoder(MINILM, device="cpu")
    scores = BertScorer(encoder, special_tokens=False).scores(pairs, [layer])[:, 0]
    network, tokenizer = encoder.model.eval(), encoder.tokenizer
    network.encoder.layer = torch.nn.ModuleList(list(network.encoder.layer)[:layer])
    weights: dict[int, float] = defaultdict(lambda: 1.0)
    weights |= {tokenizer.sep_token_id: 0.0, tokenizer.cls_token_id: 0.0}
    second, first = [pair.sentence2 for pair in pairs], [pair.sentence1 for pair in pairs]
    theirs = package.bert_cos_score_idf(
        network, second, first, tokenizer, weights, device="cpu", verbose=False
    )[..., 2]
    return float(np.abs(theirs.numpy() - scores).max())


if __name__ == "__main__":
    main()
