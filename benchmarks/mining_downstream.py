"""What mined pairs are worth: readers and summarisers trained on 100 seeds and on 50 to 500 pairs more.

python benchmarks/mining_downstream.py squad --data DATA --work FOLDER --json FILE --plot FILE.svg
python benchmarks/mining_downstream.py news --data DATA --work FOLDER --json FILE --plot FILE.svg

FOLDER is that of ``mining.py``, which mined for each set of seeds and judged the candidates; Figures 3 and 4
of the mining paper are made from it. All models begin from SmolLM2. Added are pairs that people labelled
(gold), the best candidates of a judge (full) and of the margin (biencoder), and those of full with the
question, or the summary, written by a model that learned from the seeds (gen). With ``--chooser`` full is
what two judges keep: one chooses the output of each input, margin and likeness rank the inputs. Interrupted,
it goes on where it was; several processes may share the work, each with ``--seeds`` and ``--methods`` of its
own. The plot wants matplotlib.
"""

import argparse
import fcntl
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from common import write
from mining import MINILM, SMOLLM2, run
from mining_data import SquadCorpora, news_corpora, squad_corpora, with_summary, write_lines
from pairsmith.steps.evaluate.qa import evaluate_qa
from pairsmith.steps.evaluate.settings import EvaluateQaSettings, EvaluateSummariesSettings
from pairsmith.steps.evaluate.summaries import evaluate_summaries
from pairsmith.steps.mine.filter import filter_pairs
from pairsmith.steps.mine.rewrite import rewrite
from pairsmith.steps.mine.settings import FilterSettings, RewriteSettings
from pairsmith.steps.training.reader import train_reader
from pairsmith.steps.training.settings import TrainReaderSettings, TrainSummarizerSettings
from pairsmith.steps.training.summarizer import train_summarizer

METHODS = {
    "gold": "human-labelled",
    "full": "full: mined, chosen by a judge",
    "biencoder": "bi-encoder: mined, largest margins",
    "gen": "gen: written by a model",
}
SIZES = (50, 100, 200, 500)
MOST = max(SIZES)
Figures = dict[str, float]
Seeds = dict[str, dict[str, dict[str, Figures]]]
"""Figures by set of seeds, by method, and by number of pairs added."""


@dataclass(frozen=True)
class Downstream:
    """What is trained, and how it is measured.

    ``figures`` are the names of the figures, the one that is plotted first; ``learned`` and ``measured`` are
    settings of the trainings and of the evaluation.
    """

    kind: str
    figures: tuple[str, ...]
    learned: Mapping[str, Any]
    measured: Mapping[str, Any]


TASKS = {
    "squad": Downstream(
        "reading",
        ("f1", "exact"),
        {"learning_rate": [1e-4], "steps": 100, "batch_size": 16, "attention_dropout": 0.0},
        {"dtype": "auto"},
    ),
    "news": Downstream(
        "summaries",
        ("rouge1", "rouge2", "rougeL"),
        {"learning_rate": [5e-5], "steps": 100, "batch_size": 8, "attention_dropout": 0.0, "max_length": 512},
        {"dtype": "auto", "batch_size": 32},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpora", choices=list(TASKS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="*", choices=["seeds", *METHODS], default=["seeds", *METHODS])
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--rate", type=float, help="Learning rate, in place of the task's own.")
    parser.add_argument("--steps", type=int, help="Training steps, in place of the task's own.")
    parser.add_argument("--judge", default="likelihood", help="Whose choice full is; a judge of mining.py.")
    parser.add_argument(
        "--chooser", help="A cross-encoder of mining.py that only chooses each input's output."
    )
    parser.add_argument("--tested", type=int, default=1_500, help="Questions or documents to test on.")
    args = parser.parse_args()
    task, work = TASKS[args.corpora], args.work.resolve()
    given = {"learning_rate": args.rate and [args.rate], "steps": args.steps}
    learned = {**task.learned, **{name: value for name, value in given.items() if value}}
    task = replace(task, learned=learned)
    test = tested(args.corpora, args.data, work / f"test-{args.tested}.jsonl", args.tested)
    choice = Choice(args.judge, args.chooser)
    if args.json.exists():
        before = json.loads(args.json.read_text(encoding="utf-8"))["settings"]
        if before.get("full", f"filtered-{before.get('judge')}") != choice.name:  # once only judges chose
            raise SystemExit(f"{args.json} has figures of other pairs; give another --json")
    for seed in args.seeds:
        for method in args.methods:
            for size in (0,) if method == "seeds" else args.sizes:
                if str(size) not in measured(args.json).get(str(seed), {}).get(method, {}):
                    figures = one(task, work / f"seed-{seed}", test, method, size, seed, choice)
                    settings = {"corpora": args.corpora, "full": choice.name, "tested": args.tested}
                    keep(args.json, settings | learned, seed, method, size, figures)
    table = means(measured(args.json))
    print(json.dumps(table, indent=1))
    if args.plot and "seeds-0" in table:
        plot(table, task.figures[0], args.plot)


def tested(corpora: str, data: Path, path: Path, count: int) -> Path:
    """The file of the questions or documents to test on, drawn from those that nothing is trained on."""
    if not path.exists():
        rows: list[Any]
        if corpora == "squad":
            squads = squad_corpora(data)
            rows = [question.columns() for question in some(squads, count).test]
        else:
            rows = [with_summary(document) for document in news_corpora(data).test[:count]]
        write_lines(path, rows)
    return path


def some(corpora: SquadCorpora, count: int) -> SquadCorpora:
    """With fewer questions to test on, of all articles."""
    picked = np.random.default_rng(3).permutation(len(corpora.test))[:count]
    return replace(corpora, test=[corpora.test[i] for i in sorted(picked.tolist())])


@dataclass(frozen=True)
class Choice:
    """Whose choice the pairs of full are: a judge's, or a cross-encoder's that only chooses."""

    judge: str
    chooser: str | None

    @property
    def name(self) -> str:
        """The folder of the pairs."""
        return f"chosen-{self.chooser}" if self.chooser else f"filtered-{self.judge}"

    def of(self, method: str) -> str:
        """A name for what a method makes of these pairs; a single judge's come first in every folder."""
        return f"{method}-{self.chooser}" if self.chooser and method in ("full", "gen", "written") else method

    def pairs(self, folder: Path) -> Path:
        """The pairs, made if they are not there."""
        return chosen(folder, self.chooser) if self.chooser else folder / self.name


def chosen(folder: Path, chooser: str) -> Path:
    """The pairs that a cross-encoder chooses, one of each input, in the order of margin and likeness."""
    settings: dict[str, Any] = {"seeds": str(folder / "seeds.jsonl"), "model": MINILM}
    settings |= {"judge": "likeness", "beside": "margin", "one_per": "pair", "share": 1, "max_length": 128}
    filter_pairs(FilterSettings(pairs=str(folder / "mined"), **settings), run(folder / "ranked"))
    settings = {"model": str(folder / f"crossencoder-{chooser}"), "dtype": "auto"}
    settings |= {"rank_by": ["score"], "one_per": "both", "best": MOST}
    filter_pairs(FilterSettings(pairs=str(folder / "ranked"), **settings), run(folder / f"chosen-{chooser}"))
    return folder / f"chosen-{chooser}"


def one(
    task: Downstream, folder: Path, test: Path, method: str, size: int, seed: int, choice: Choice
) -> Figures:
    """The figures of one model, trained on the seeds and on ``size`` pairs of a method."""
    added = [] if method == "seeds" else [added_pairs(task, folder, method, seed, choice)]
    name = f"{choice.of(method)}-{size}"
    model = folder / f"trained-{name}"
    trained(task, folder, model, seed, added, size, mined=method != "gold")
    settings = {"model": str(model), "data": str(test), **task.measured}
    place = run(folder / f"measured-{name}")
    if task.kind == "reading":
        results: Any = evaluate_qa(EvaluateQaSettings(**settings), place)
    else:
        results = evaluate_summaries(EvaluateSummariesSettings(**settings), place)
    return {name: float(results[name]) for name in task.figures}


def trained(
    task: Downstream,
    folder: Path,
    model: Path,
    seed: int,
    added: Sequence[str] = (),
    size: int = 0,
    mined: bool = True,
) -> None:
    """Train a reader or a summariser into ``model``.

    A special token marks documents that were ``mined`` (M9); those that people summarised have none, as seeds
    and test documents.
    """
    settings: dict[str, Any] = {"seeds": str(folder / "seeds.jsonl"), "base": SMOLLM2, "seed": seed}
    settings |= {"added": list(added), "extra": size or None, **task.learned}
    if task.kind == "reading":
        train_reader(TrainReaderSettings(**settings), run(model))
    else:
        settings |= {} if mined else {"marker": ""}
        train_summarizer(TrainSummarizerSettings(**settings), run(model))


def added_pairs(task: Downstream, folder: Path, method: str, seed: int, choice: Choice) -> str:
    """The file or folder of a method's pairs, the best first; made if it is not there."""
    if method == "gold":
        return str(folder / "gold.jsonl")
    if method == "full":
        return str(choice.pairs(folder))
    if method == "biencoder":
        settings: dict[str, Any] = {
            "pairs": str(folder / "mined"),
            "judge": "margin",
            "one_per": "both",
            "best": MOST,
        }
        filter_pairs(FilterSettings(**settings), run(folder / "by-margin"))
        return str(folder / "by-margin")
    writer = folder / "writer"
    pairs: dict[str, Any] = {"kind": task.kind, "pairs": str(choice.pairs(folder))}
    pairs |= {"model": str(writer), "best": MOST, "dtype": "auto", "batch_size": 32}
    if task.kind == "reading":
        learned: dict[str, Any] = {
            "seeds": str(folder / "seeds.jsonl"),
            "base": SMOLLM2,
            "kind": "reading",
            "seed": seed,
        }
        learned |= {"learning_rate": [5e-5], "steps": 100, "batch_size": 16, "max_length": 384}
        train_summarizer(TrainSummarizerSettings(**learned), run(writer))
    else:
        trained(task, folder, writer, seed)
    written = folder / choice.of("written")
    rewrite(RewriteSettings(**pairs), run(written))
    return str(written)


def measured(path: Path) -> Seeds:
    """The figures that a file holds."""
    if not path.exists():
        return {}
    figures: Seeds = json.loads(path.read_text(encoding="utf-8"))["results"]["seeds"]
    return figures


def keep(
    path: Path, settings: Mapping[str, Any], seed: int, method: str, size: int, figures: Figures
) -> None:
    """Add figures to the file, where other processes may do so, too."""
    print(json.dumps({f"{seed} {method} {size}": figures}), flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        every = measured(path)
        every.setdefault(str(seed), {}).setdefault(method, {})[str(size)] = figures
        write(path, {"settings": dict(settings), "results": {"seeds": every, "means": means(every)}})


def means(every: Seeds) -> dict[str, dict[str, list[float]]]:
    """Of each figure the mean over the sets of seeds, and half of its 95 % interval."""
    values: dict[str, dict[str, list[float]]] = {}
    for methods in every.values():
        for method, sizes in methods.items():
            for size, figures in sizes.items():
                for name, value in figures.items():
                    values.setdefault(f"{method}-{size}", {}).setdefault(name, []).append(value)
    return {
        key: {
            name: [round(float(np.mean(figure_values)), 2), half_interval(figure_values)]
            for name, figure_values in figures.items()
        }
        for key, figures in values.items()
    }


STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}
"""The 97.5 % quantile of Student's t by the number of values."""


def half_interval(values: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of a mean; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    return round(float(STUDENT[len(values)] * np.std(values, ddof=1) / len(values) ** 0.5), 2)


def plot(table: Mapping[str, Mapping[str, Sequence[float]]], figure: str, path: Path) -> None:
    """A figure by the number of pairs added, a line for each method."""
    plt = importlib.import_module("matplotlib.pyplot")
    drawing, axes = plt.subplots(figsize=(6, 4))
    for place, (method, label) in enumerate(METHODS.items()):
        sizes = [size for size in SIZES if f"{method}-{size}" in table]
        points = [table["seeds-0"][figure], *(table[f"{method}-{size}"][figure] for size in sizes)]
        mean, half = zip(*points, strict=True)
        beside = [size + 4 * place for size in (0, *sizes)]  # so that intervals do not hide each other
        axes.errorbar(beside, mean, yerr=half, label=label, marker="o", capsize=3)
    axes.set_xlabel("pairs added to 100 seeds")
    axes.set_ylabel({"f1": "F1", "rouge1": "ROUGE-1"}[figure])
    drawing.legend(*axes.get_legend_handles_labels(), frameon=False, loc="upper center", ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    drawing.tight_layout(rect=(0, 0, 1, 0.88))
    drawing.savefig(path)


if __name__ == "__main__":
    main()
