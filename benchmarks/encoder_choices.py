"""Which objective, rate, batch, attention and rows train the best encoder, on STSb's development part.

    python benchmarks/encoder_choices.py --data DATA --pairs DIR --json FILE

DIR is a folder of written pairs, such as ``pairs-1-100`` of ``sts_x2.py`` or ``pair_quality.py``. Each choice
trains SmolLM2's first layers on these pairs and says Spearman ×100 on every third of the development pairs,
before training and as it goes. ``--only`` takes some of the choices, ``--inputs`` the pairs of the first N
sentences. Choices that begin with "rows:" take 75 steps and compare ways to leave out 30 % of the rows.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common import stsb_both_columns, write
from pairsmith.core.progress import Progress
from pairsmith.data.tasks import TaskSpec
from pairsmith.methods.dino.encoder import train_encoder_on
from pairsmith.methods.dino.training_set import make_training_set
from pairsmith.methods.mining.ranking import balanced_order, ranks, target_agreement
from pairsmith.metrics.similarity import cosine_similarity_rows
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import DatasetFolder
from pairsmith.steps.generate.postprocess import schema_and_rows
from pairsmith.steps.generate.settings import PostprocessSettings
from pairsmith.steps.training.encoder import base_encoder
from pairsmith.steps.training.settings import TrainEncoderSettings

COLUMNS = ["sentence1", "sentence2", "score"]
CONTRAST = {"objective": "contrastive", "learning_rate": 3e-4, "epochs": 2.0, "eval_steps": 30}
BOTH = {"attention": "bidirectional"}
SHORT = {**CONTRAST, **BOTH, "epochs": 9.0, "max_steps": 75, "eval_steps": 25}
CHOICES: dict[str, dict[str, Any]] = {
    "contrastive, causal": CONTRAST,
    "contrastive": {**CONTRAST, **BOTH},
    "contrastive, 5e-4": {**CONTRAST, **BOTH, "learning_rate": 5e-4},
    "contrastive, 64 at 5e-4": {
        **CONTRAST,
        **BOTH,
        "learning_rate": 5e-4,
        "batch_size": 64,
        "epochs": 4.0,
        "eval_steps": 26,
    },
    "contrastive, nine layers": {**CONTRAST, **BOTH, "layers": 9, "eval_steps": 52},
    "contrastive, 40 steps": {**SHORT, "epochs": 20.0, "max_steps": 40, "eval_steps": 20},
    "cosine, causal, 1e-4": {"learning_rate": 1e-4, "eval_steps": 60},
    "cosine, 1e-4": {**BOTH, "learning_rate": 1e-4, "eval_steps": 60},
    "cosine, 3e-4": {**BOTH, "learning_rate": 3e-4, "eval_steps": 60},
    "cosine without label 0.5": {**BOTH, "learning_rate": 3e-4, "eval_steps": 40, "max_steps": 120},
    "cosent": {**BOTH, "objective": "cosent", "learning_rate": 3e-4, "eval_steps": 40, "max_steps": 120},
    "rows: all": SHORT,
    "rows: random": SHORT,
    "rows: agreement of all-MiniLM-L6-v2": SHORT,
}
"""By name the settings that are not those of ``trained``."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True, help="folder of pairs that generate wrote")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--inputs", type=int, help="only pairs of the first N sentences")
    parser.add_argument("--only", nargs="+", default=list(CHOICES), choices=list(CHOICES))
    args = parser.parse_args()
    folder = DatasetFolder.open(args.pairs)
    pairs = folder.table("train")
    if args.inputs:
        first = pa.array(stsb_both_columns(args.data, args.inputs))
        pairs = pairs.filter(pc.is_in(pairs["sentence1"], first))
    development = every_third(args.data / "stsb" / "sts-dev.csv")
    results: dict[str, Any] = {}
    for name in args.only:
        results[name] = trained(rows_for(name, pairs, folder), development, CHOICES[name])
        print(name, results[name], flush=True)
        write(args.json, {"pairs": args.pairs.name, "inputs": args.inputs, "choices": results})


def every_third(file: Path) -> pa.Table:
    """Every third pair of the development part, with scores from 0 to 1."""
    lines = [line.rstrip("\n").split("\t") for line in file.read_text(encoding="utf-8").splitlines()][::3]
    columns = [
        [line[5] for line in lines],
        [line[6] for line in lines],
        [float(line[4]) / 5 for line in lines],
    ]
    return pa.table(dict(zip(COLUMNS, columns, strict=True)))


def rows_for(name: str, pairs: pa.Table, folder: DatasetFolder) -> pa.Table:
    """What a choice is trained on; cosine and cosent have smoothed rows and sampled negatives (D6-D8)."""
    if name.startswith("rows:") or name == "contrastive, 40 steps":
        return chosen(name, pairs).select(COLUMNS)
    task = TaskSpec.model_validate(folder.manifest.settings["task"])
    cleaning = PostprocessSettings(data="pairs", augment=0 if name.startswith("contrastive") else 2)
    _, rows = schema_and_rows(pairs, folder.path.name)
    training_rows = make_training_set(rows, task, cleaning.options).train
    table = pa.Table.from_pylist(
        [{column: getattr(row, column) for column in COLUMNS} for row in training_rows]
    )
    return table.filter(pc.not_equal(table["score"], 0.5)) if name.endswith("label 0.5") else table


def chosen(name: str, pairs: pa.Table) -> pa.Table:
    """All pairs, or 70 % of them: by chance, or of each label those that an encoder agrees with most."""
    count = int(0.7 * pairs.num_rows)
    if name == "rows: random":
        return pairs.take(np.sort(np.random.default_rng(0).permutation(pairs.num_rows)[:count]))
    if name == "rows: agreement of all-MiniLM-L6-v2":
        encoder = load_sentence_encoder("embedded:all-minilm-l6-v2")
        first, second = (encode_texts(encoder, pairs[column].to_pylist()) for column in COLUMNS[:2])
        labels = pairs["score"].to_numpy()
        agreed = target_agreement(ranks(cosine_similarity_rows(first, second).astype(np.float32)), labels)
        return pairs.take(np.sort(balanced_order(agreed, labels)[:count]))
    return pairs


def trained(rows: pa.Table, development: pa.Table, choice: dict[str, Any]) -> dict[str, Any]:
    """Spearman ×100 on the development pairs by step."""
    given = {"base": "embedded:smollm2-135m-instruct", "data": "pairs", "layers": 6, "centre": True, **choice}
    settings = TrainEncoderSettings(**given)
    history = train_encoder_on(
        base_encoder(settings), rows, development, settings, progress=Progress(every=60)
    ).to_json()
    return {"settings": choice, "rows": rows.num_rows, "development": history["validation"]}


if __name__ == "__main__":
    main()
