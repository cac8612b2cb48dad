"""A recipe of QUIP on real data, and which of the paper's claims hold at this size.

python benchmarks/quip.py --data DATA --work FOLDER --json FILE

A claim compares two figures. It is held where the first is higher by more than 1.96 standard errors of the
difference, not held where it is lower by as much, and else within noise. Errors of answers and pairs come
from resamples, those of names and opinions from splits and prompts. Interrupted, it goes on where it was.
"""

import argparse
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from common import write
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core.bundled import recipe_path
from pairsmith.core.progress import Progress
from pairsmith.methods.quip.names import TYPE_QUESTIONS
from pairsmith.models.span_answers import question_vectors
from pairsmith.models.span_encoder import load_span_encoder
from pairsmith.runs import DatasetFolder
from quip_data import write_quip

Figure = tuple[float, float]
"""A figure ×100 and its standard error."""

CLAIMS = {
    "student above people's questions alone (Table 1)": ("squad-student:f1", "squad-direct:f1"),
    "student above no teacher (Table 1)": ("squad-student:f1", "squad-untaught:f1"),
    "student above clozes (Table 1)": ("squad-student:f1", "squad-clozed:f1"),
    "cross-encoder student above student (Table 1)": ("squad-crossed:f1", "squad-student:f1"),
    "MRPC, AUROC after above before (Table 2)": ("student-mrpc:auroc", "minilm-mrpc:auroc"),
    "PAWS, AUROC after above before (Table 2)": ("student-paws:auroc", "minilm-paws:auroc"),
    "QQP with sampled negatives, AUROC after above before (Table 2)": (
        "student-qqp:auroc",
        "minilm-qqp:auroc",
    ),
    "MRPC, AUROC above people's questions alone (Table 2)": ("student-mrpc:auroc", "direct-mrpc:auroc"),
    "PAWS, AUROC above people's questions alone (Table 2)": ("student-paws:auroc", "direct-paws:auroc"),
    "MRPC, 16 a class, after above before (Table 3)": (
        "student-mrpc:few_shot.frozen.f1",
        "minilm-mrpc:few_shot.frozen.f1",
    ),
    "PAWS, 16 a class, after above before (Table 3)": (
        "student-paws:few_shot.frozen.f1",
        "minilm-paws:few_shot.frozen.f1",
    ),
    "CoNLL, after above before, both at random (Table 4)": (
        "student-conll2003:random.f1",
        "minilm-conll2003:random.f1",
    ),
    "CoNLL, questions above random (Table 4)": (
        "student-conll2003:questions.f1",
        "student-conll2003:random.f1",
    ),
    "WNUT, after above before, both at random (Table 4)": (
        "student-wnut17:random.f1",
        "minilm-wnut17:random.f1",
    ),
    "WNUT, questions above random (Table 4)": ("student-wnut17:questions.f1", "student-wnut17:random.f1"),
    "WNUT, all sentences, after from questions above before (Table 10)": (
        "student-wnut17-whole:questions.f1",
        "minilm-wnut17-whole:random.f1",
    ),
    "SST-2, student above cross-encoder student (Table 5)": (
        "student-sst2:calibrated.accuracy",
        "crossed-sst2:plain.accuracy",
    ),
}
"""What the paper claims: that the first figure is above the second."""

COMPARED = {
    "teacher's distributions and its best answers (Table 7)": ("squad-student:f1", "squad-hard:f1"),
    "each passage alone and passages joined (Table 7)": ("squad-student:f1", "squad-joined:f1"),
    "sampled questions and those of two beam searches (Table 7)": ("squad-student:f1", "squad-beamed:f1"),
    "CoNLL, student and people's questions alone, both from questions": (
        "student-conll2003:questions.f1",
        "direct-conll2003:questions.f1",
    ),
    "CoNLL, all sentences, after from questions and before (Table 10)": (
        "student-conll2003-whole:questions.f1",
        "minilm-conll2003-whole:random.f1",
    ),
    "WNUT, student and people's questions alone, both from questions": (
        "student-wnut17:questions.f1",
        "direct-wnut17:questions.f1",
    ),
} | {
    f"{name}, {what}": (f"student-{folder}:calibrated.accuracy", other)
    for name, folder in {"SST-2": "sst2", "MR": "mr", "CR": "cr"}.items()
    for what, other in {
        "calibrated and plain": f"student-{folder}:plain.accuracy",
        "student and people's questions alone": f"direct-{folder}:calibrated.accuracy",
        "student and no teacher": f"untaught-{folder}:calibrated.accuracy",
    }.items()
}
COMPARED |= {
    f"people's questions, passages joined and each alone: {name}": (f"{of}:{figure}", f"{other}:{figure}")
    for name, of, other, figure in (
        ("SQuAD", "squad-joined", "squad-direct", "f1"),
        ("SST-2", "joined-sst2", "direct-sst2", "ranking.auroc"),
        ("MR", "joined-mr", "direct-mr", "ranking.auroc"),
        ("CR", "joined-cr", "direct-cr", "ranking.auroc"),
        ("MRPC", "joined-mrpc", "direct-mrpc", "auroc"),
        ("PAWS", "joined-paws", "direct-paws", "auroc"),
        ("QQP", "joined-qqp", "direct-qqp", "auroc"),
        ("CoNLL", "joined-conll2003", "direct-conll2003", "random.f1"),
        ("WNUT", "joined-wnut17", "direct-wnut17", "random.f1"),
    )
}
"""What the paper finds equal (Table 7), or does not compare."""

RATIONALES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--recipe", choices=["quip-small", "quip-people", "quip-smollm2"], default="quip-small"
    )
    parser.add_argument("--news", type=int, help="Ask only about the first so many of the BBC's texts.")
    parser.add_argument("--qamr", type=int, help="Only the first so many of QAMR's questions.")
    parser.add_argument("--passages", type=int, help="Only so many passages of SQuAD to learn from.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--so-far", action="store_true", help="Write what finished steps tell; do no step.")
    args = parser.parse_args()
    write_quip(args.data, args.work / "quip", args.news, args.qamr, args.passages)
    path = shutil.copy(recipe_path(args.recipe), args.work / f"{args.recipe}.yaml")
    recipe = load_recipe(Path(path), seed=args.seed)
    run = args.work / f"{'run' if args.recipe == 'quip-small' else args.recipe}-{args.seed}"
    if not args.so_far:
        run_recipe(recipe, run, Progress())
    names = {name: source.replace("/", ":", 1) for name, source in recipe.results.items()}
    figures = {name: figure(run, source)[0] for name, source in names.items() if is_there(run, source)}
    claims = {claim: judged(run, *pair) for claim, pair in CLAIMS.items() if are_there(run, pair)}
    words = ("the first is higher", "the second is higher")
    compared = {name: judged(run, *pair, words) for name, pair in COMPARED.items() if are_there(run, pair)}
    print(json.dumps({"claims": claims, "compared": compared}, indent=1))
    if args.json:
        kept = ("recipe", "news", "qamr", "passages", "seed")
        results = {"figures": figures, "claims": claims, "compared": compared}
        if (run / "asked" / "manifest.json").is_file():
            results["asked"] = asked(run / "asked")
        if is_there(run, "student-sst2"):
            results["rationales"] = rationales(run / "student-sst2")
        if (run / "student" / "model.safetensors").is_file():
            results["cosines of questions"] = list(question_cosines(run / "student"))
        write(args.json, {"settings": {name: getattr(args, name) for name in kept}, "results": results})


def asked(folder: Path) -> dict[str, Any]:
    """How many questions there are, of how many passages, and how often the passage has the answer."""
    rows = DatasetFolder.open(folder).table().select(["context", "answers"]).to_pylist()
    standing = sum(bool(row["answers"]["text"]) for row in rows)
    passages = len({row["context"] for row in rows})
    return {"questions": len(rows), "passages": passages, "answers in the passage": standing / len(rows)}


def question_cosines(student: Path) -> tuple[float, float]:
    """The smallest and the largest cosine between the start vectors of two types' questions (Q10)."""
    with torch.inference_mode():
        starts, _ = question_vectors(load_span_encoder(str(student)), list(TYPE_QUESTIONS.values()))
    vectors = torch.nn.functional.normalize(starts.float(), dim=1)
    cosines = (vectors @ vectors.T)[*torch.triu_indices(len(vectors), len(vectors), offset=1)]
    return round(float(cosines.min()), 3), round(float(cosines.max()), 3)


def judged(
    run: Path, higher: str, lower: str, words: tuple[str, str] = ("held", "not held")
) -> dict[str, Any]:
    """Two figures, and in one of two words whether the first or the second is the higher one."""
    (first, error), (second, other) = (figure(run, name) for name in (higher, lower))
    noise = 1.96 * math.hypot(error, other)
    verdict = "within noise" if abs(first - second) <= noise else words[int(first < second)]
    return {higher: round(first, 2), lower: round(second, 2), "noise": round(noise, 2), "claim": verdict}


def are_there(run: Path, names: Sequence[str]) -> bool:
    """Whether the steps of figures are finished."""
    return all(is_there(run, name) for name in names)


def is_there(run: Path, name: str) -> bool:
    """Whether the step of a figure is finished, and its results have the figure."""
    step, _, keys = name.partition(":")
    path = run / step / "results.json"
    if not path.is_file():
        return False
    figures: Any = json.loads(path.read_text(encoding="utf-8"))
    for key in keys.split(".") if keys else ():
        if key not in figures:
            return False
        figures = figures[key]
    return True


def figure(run: Path, name: str) -> Figure:
    """A figure of a step, ``step:key.key``, with the standard error that its results tell of."""
    step, _, keys = name.partition(":")
    figures: Any = json.loads((run / step / "results.json").read_text(encoding="utf-8"))
    *path, last = keys.split(".")
    for key in path:
        figures = figures[key]
    return float(figures[last]), error_of(figures, last)


def error_of(results: Mapping[str, Any], name: str) -> float:
    if "error" in results:
        return float(results["error"] or 0.0)  # a single split has none
    low, high = results[f"{name}_ci"]
    return float(high - low) / (2 * 1.96)


def rationales(folder: Path) -> list[dict[str, Any]]:
    """Of the first texts that the rationales' prompt judged right, the span that answers it best."""
    rationales = []
    for line in (folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["rationale_side"] == ("positive" if row["positive"] else "negative"):
            rationales.append({key: row[key] for key in ("text", "positive", "rationale")})
    return rationales[:RATIONALES]


if __name__ == "__main__":
    main()
