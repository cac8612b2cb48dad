"""Classifiers trained on texts that SmolLM2 wrote and nothing else: accuracy and macro F1 on people's labels.

    python benchmarks/classifier.py --data DATA --work DIR --json FILE

Three sets: SST-2 (sentences of film reviews, in Stanford's split), customer reviews of products, and AG
News (its test part, as the rest was not at hand). A seeded third of the latter two is for development and
for the ceiling, and the rest is the test set. For each set: the most frequent label; all-MiniLM-L6-v2
without training, by the names of the labels; a head on its vectors, trained on written texts, with
self-debiasing as in the paper (decay 100) and without (0); and the same head trained on as many of people's
rows. Intervals are bootstraps over test rows; which C is best is looked up on development rows alone. Texts
that lie in DIR are not written again. ``--development`` measures on the development rows instead, for
choosing instructions.
"""

import argparse
import csv
import gzip
import json
import random
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from common import write
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.labelled_texts import LabelledTexts, read_labelled_texts
from pairsmith.methods.dino.classifier import fit_head, train_classifier_on
from pairsmith.methods.dino.evaluation import classification_figures
from pairsmith.methods.dino.options import ClassifierOptions
from pairsmith.models.classifier import TextClassifier, classifier_of_names, text_unit_vectors
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.models.trained_on import fingerprint_of
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.generate.postprocess import postprocess
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings, PostprocessSettings

ENCODER = "embedded:all-minilm-l6-v2"
TASKS = Path(__file__).parent / "tasks"
Rows = list[tuple[str, str]]
"""Texts with their labels."""


@dataclass(frozen=True)
class TestSet:
    """How a set is read and what its labels are called.

    ``also`` is a task whose texts are tried beside them, with decay 100 alone; ``names`` describe the labels.
    """

    task: str
    also: str
    names: dict[str, str]
    per_label: int


SETS = {
    "sst2": TestSet(
        "movie-sentences",
        "movie-reviews",
        {"positive": "a good movie", "negative": "a bad movie"},
        200,
    ),
    "cr": TestSet(
        str(TASKS / "products.yaml"),
        "",
        {"positive": "a good product", "negative": "a bad product"},
        150,
    ),
    "ag_news": TestSet(
        str(TASKS / "news.yaml"),
        str(TASKS / "news-plain.yaml"),
        {
            "world": "world politics",
            "sports": "sports",
            "business": "business",
            "technology": "science and technology",
        },
        100,
    ),
}
VALUES = [0.1, 1.0, 10.0, 100.0]
"""Of C."""

MIN_WORDS = 4
"""Shorter texts, such as "The film", are left out."""

RENAMED = {"good": "positive", "bad": "negative"}
"""Labels of movie-reviews, as SST-2 has others."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for texts and models")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--decays", type=float, nargs="+", default=[100.0, 0.0])
    parser.add_argument("--also", action="store_true", help="also the tasks for comparison")
    parser.add_argument("--model", default="embedded:smollm2-135m-instruct")
    parser.add_argument("--dtype", default="float32", choices=["auto", "float32", "bfloat16"])
    parser.add_argument(
        "--agreeing", action="store_true", help="also without texts that are nearer to another label's name"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--development", action="store_true", help="measure on the development rows")
    args = parser.parse_args()

    results: dict[str, Any] = {}
    for name in args.sets:
        results[name] = figures = measured(args, name)
        print(name, json.dumps(figures, indent=1), flush=True)
        about = {"model": args.model, "encoder": ENCODER, "dtype": args.dtype, "seed": args.seed}
        on = "development" if args.development else "test"
        write(args.json, {**about, "measured on": on, "sets": results})


def measured(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """The figures of all classifiers on one set."""
    chosen, work = SETS[name], args.work / name
    files = {part: saved(work / f"{part}.jsonl", rows) for part, rows in read(args.data, name).items()}
    test = files["development" if args.development else "test"]
    encoder = load_sentence_encoder(ENCODER)
    by_names = classifier_of_names(encoder, {label: [text] for label, text in chosen.names.items()})
    figures: dict[str, Any] = {"names of labels": score(by_names, test)}
    tried = [(chosen.task, decay) for decay in args.decays]
    for source, decay in [*tried, *([(chosen.also, 100.0)] if args.also and chosen.also else [])]:
        cell = f"{Path(source).stem}-{decay:g}"
        texts = written(args, source, work / f"texts-{cell}", decay, chosen.per_label)
        rows = texts.table("train").to_pylist()
        labelled = [(row["text"], RENAMED.get(row["label"], row["label"])) for row in rows]
        data = saved(work / f"{cell}.jsonl", labelled)
        figures[f"{Path(source).stem}, decay {decay:g}"] = {
            "rejected": DatasetFolder.open(str(work / f"texts-{cell}")).rejects().num_rows,
            **trained(data, files["development"], test),
        }
        if args.agreeing:
            rows_of, vectors = encoded(data)
            nearest = [
                by_names.labels[best] for best in (vectors @ by_names.weight.T).argmax(axis=1).tolist()
            ]
            pairs = zip(labelled, nearest, rows_of.labels, strict=True)
            agreeing = saved(
                work / f"{cell}-agreeing.jsonl", [row for row, name, label in pairs if name == label]
            )
            key = f"{Path(source).stem}, decay {decay:g}, nearest to their label's name"
            figures[key] = trained(agreeing, files["development"], test)
    figures["people"] = trained(files["people"], files["development"], test)
    return figures


def trained(data: Path, development: Path, test: Path) -> dict[str, Any]:
    """A head that is trained on labelled texts: how many, its figures, and what another C would have given.

    The latter is the accuracy ×100 on the development rows, and the C that cross-validation would choose.
    """
    encoder = load_sentence_encoder(ENCODER)
    train = read_labelled_texts(str(data))
    classifier, training = train_classifier_on(encoder, train, None, ClassifierOptions())
    names, vectors = classifier.labels, encoded(data)[1]
    gold = np.array([names.index(label) for label in train.labels])
    heads = {f"{c:g}": TextClassifier(encoder, names, *fit_head(vectors, gold, c)) for c in VALUES}
    tried = {c: score(head, development)["accuracy"][0] for c, head in heads.items()}
    chosen = train_classifier_on(encoder, train, None, ClassifierOptions(c=VALUES))[1].c
    return {
        "texts": training.texts,
        "c": training.c,
        "development, by C": tried | {"cross-validation chooses": chosen},
        **score(classifier, test),
    }


def score(classifier: TextClassifier, source: Path) -> dict[str, Any]:
    """The figures of a classifier with their intervals."""
    rows, vectors = encoded(source)
    best = (vectors @ classifier.weight.T + classifier.bias).argmax(axis=1).tolist()
    results = classification_figures(classifier.labels, rows.labels, best)
    figures = {name: [results[name], *results[f"{name}_ci"]] for name in ("accuracy", "macro_f1")}
    return figures | {
        "f1": {label: counts["f1"] for label, counts in results["labels"].items()},
        "predicted": {label: counts["predicted"] for label, counts in results["labels"].items()},
        "largest label": results["largest"],
        "rows": results["count"],
        "trained on": sum(fingerprint_of(text) in classifier.trained_on for text in rows.texts),
    }


@cache
def encoded(source: Path) -> tuple[LabelledTexts, Any]:
    """The rows of a file, and their vectors, scaled to length 1."""
    rows = read_labelled_texts(str(source))
    return rows, text_unit_vectors(load_sentence_encoder(ENCODER), rows.texts)


def written(args: argparse.Namespace, task: str, out: Path, decay: float, per_label: int) -> DatasetFolder:
    """The cleaned texts of a task, written now where they do not lie there."""
    settings = GenerateSettings(
        model=args.model, task=task, seed=args.seed, dtype=args.dtype, decay=decay, per_input=per_label
    )
    generate(settings, Run(out, Progress(every=60)))
    cleaning = PostprocessSettings(data=str(out), validation=0, min_words=MIN_WORDS)
    return postprocess(cleaning, Run(out.parent / f"clean-{out.name}", Silent()))


# data


def read(data: Path, name: str) -> dict[str, Rows]:
    """The rows for development, for the ceiling (as many a label as are written), and the test rows."""
    count = SETS[name].per_label
    if name == "sst2":
        parts = {
            part: sst2(data / "sst2" / "sentence-level" / f"stsa.binary.{part}")
            for part in ("train", "dev", "test")
        }
        return {
            "development": parts["dev"],
            "people": some_of_each(parts["train"], count),
            "test": parts["test"],
        }
    every = customers(data / "cr") if name == "cr" else news(data / "ag_news" / "test.csv.gz")
    random.Random(0).shuffle(every)
    third = len(every) // 3
    kept, test = every[:third], every[third:]
    people = some_of_each(kept, count)
    return {"development": [row for row in kept if row not in set(people)], "people": people, "test": test}


def sst2(path: Path) -> Rows:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(line[2:].strip(), ("negative", "positive")[int(line[0])]) for line in lines]


def customers(folder: Path) -> Rows:
    """Customer reviews; of equal sentences the first."""
    rows: dict[str, str] = {}
    for side, label in (("pos", "positive"), ("neg", "negative")):
        for line in (
            (folder / f"custrev.{side}.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.strip():
                rows.setdefault(line.strip(), label)
    return list(rows.items())


def news(path: Path) -> Rows:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        return [
            (f"{title} {text}".replace("\\", " "), list(SETS["ag_news"].names)[int(number) - 1])
            for number, title, text in csv.reader(lines)
        ]


def some_of_each(rows: Rows, count: int) -> Rows:
    """``count`` rows of each label, or all it has, in a fixed random order."""
    rows = random.Random(0).sample(rows, len(rows))
    held: dict[str, Rows] = defaultdict(list)
    for row in rows:
        held[row[1]].append(row)
    return [row for some in held.values() for row in some[:count]]


def saved(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
