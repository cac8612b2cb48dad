"""How many mined pairs belong together, where that is known: by the bi-encoder's margin, and by judges.

python benchmarks/mining.py squad --data DATA --work FOLDER --json FILE
python benchmarks/mining.py news --data DATA --work FOLDER --json FILE

squad: of 32 articles, 100 questions are seeds; the other questions, among four times as many unrelated ones,
are the inputs, and all candidate answers of the articles' passages and of news the outputs. news: of XSum's
documents, 100 with their summaries are seeds; the others, among BBC's and Reuters', are the inputs, and their
summaries, among all sentences of BBC and Reuters, the outputs. The candidates of the largest margins are
mined. By margin the best of them are taken, each text once (``margin``: the bi-encoder alone); judges rank
all of them anew, alone, by the sum of their standardised scores, and so that a judge chooses the output of
each input and the margin, or margin and likeness, rank the inputs. Interrupted, it goes on where it was; with
more judges than before it does what is missing.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from common import write
from mining_data import news_corpora, squad_corpora, write_news, write_squad
from pairsmith.core.progress import Progress
from pairsmith.data.documents import Document
from pairsmith.data.squad import Question
from pairsmith.methods.mining.ranking import chosen_first, standardised, winners
from pairsmith.metrics.rouge import abstractiveness
from pairsmith.metrics.squad import normalized
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.mine.filter import filter_pairs
from pairsmith.steps.mine.route import mine
from pairsmith.steps.mine.settings import FilterSettings, MineSettings
from pairsmith.steps.training.biencoder import train_biencoder
from pairsmith.steps.training.crossencoder import train_crossencoder
from pairsmith.steps.training.settings import TrainBiencoderSettings, TrainCrossencoderSettings

MINILM = "embedded:all-minilm-l6-v2"
SMOLLM2 = "embedded:smollm2-135m-instruct"
BEST = (100, 250, 500)

Figures = dict[str, float]


@dataclass(frozen=True)
class Task:
    """What is mined, and how it is judged.

    Attributes:
        kind: of the pairs.
        files: writes those of one set of seeds into a folder.
        figures: of mined rows, the best first.
        judged: the side whose style is judged (M4), and ``gold`` the texts there that belong to something.
        training: settings of both trainings that differ from the defaults; ``mining``: of ``mine``;
            ``crossencoder``: of the cross-encoder's alone; ``smollm2``: where it is SmolLM2.
        start: settings of a training on other pairs, with which the judge ``start`` begins.
    """

    kind: str
    files: Callable[[int, Path], dict[str, str]]
    figures: Callable[[Sequence[Mapping[str, Any]]], Figures]
    judged: str
    gold: Set[str]
    training: Mapping[str, Any]
    mining: Mapping[str, Any]
    crossencoder: Mapping[str, Any]
    smollm2: Mapping[str, Any]
    start: Mapping[str, Any]


def squad(data: Path, passages: int) -> Task:
    corpora = squad_corpora(data)
    gold = gold_of(corpora.mining)
    return Task(
        "reading",
        lambda seed, work: write_squad(corpora, seed, work, passages),
        lambda rows: positive_answers(rows, gold),
        "inputs",
        gold.keys(),
        {"window": 60},
        {"window": 60, "k": 8},
        {"steps": 100, "learning_rate": [5e-5]},
        {"learning_rate": [1e-4], "max_length": 384},
        {"steps": 400, "learning_rate": [1e-4]},
    )


def news(data: Path, reuters: int) -> Task:
    corpora = news_corpora(data, reuters)
    return Task(
        "summaries",
        lambda seed, work: write_news(corpora, seed, work),
        lambda rows: right_summaries(rows, corpora.mining),
        "outputs",
        {document.summary for document in corpora.mining},
        {"max_length": 160},
        {"k": 16},
        {"steps": 200, "learning_rate": [1e-4], "batch_size": 8, "retrieved": 8},
        {"steps": 60, "max_length": 256},
        {"steps": 300, "learning_rate": [1e-4], "batch_size": 8},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", choices=["squad", "news"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 4, 5])
    parser.add_argument("--judges", nargs="*", choices=list(JUDGES), default=list(JUDGES))
    parser.add_argument("--candidates", type=int, default=5_000)
    parser.add_argument("--passages", type=int, default=500, help="Unrelated ones (squad).")
    parser.add_argument("--reuters", type=int, default=2_000, help="Documents (news).")
    args = parser.parse_args()
    squads = args.corpora == "squad"
    task = squad(args.data, args.passages) if squads else news(args.data, args.reuters)
    results = {}
    for seed in args.seeds:
        results[seed] = one(task, seed, args.work / f"seed-{seed}", args)
        print(json.dumps({seed: results[seed]}), flush=True)
    means = {
        method: {
            figure: round(float(np.mean([figures[method][figure] for figures in results.values()])), 2)
            for figure in figures
        }
        for method, figures in next(iter(results.values())).items()
    }
    print(json.dumps(means, indent=1))
    if args.json:
        settings = {"passages": args.passages} if squads else {"reuters": args.reuters}
        settings |= {"candidates": args.candidates, "judges": args.judges}
        write(args.json, {"settings": settings, "results": {"seeds": results, "means": means}})


def one(task: Task, seed: int, work: Path, args: argparse.Namespace) -> dict[str, Figures]:
    """The figures of one set of seeds: by the bi-encoder's margin and by each judge, see ``ranked``."""
    files = task.files(seed, work)
    common = {"kind": task.kind, "seeds": files["seeds"], "base": MINILM, "seed": seed}
    common |= {"dtype": "auto", "attention_dropout": 0.0, "batch_size": 16, **task.training}
    corpora = {"inputs": [files["inputs"]], "outputs": [files["outputs"]]}
    around = corpora if task.kind == "reading" else {"outputs": corpora["outputs"]}
    train_biencoder(TrainBiencoderSettings(**common, **around, steps=100), run(work / "biencoder"))
    given = {**task.mining, **corpora, "encoder": str(work / "biencoder"), "retrieval": "candidates"}
    mined = mine(MineSettings(kind=task.kind, best=args.candidates, **given), run(work / "mined"))
    table = mined.table()
    common |= {"mined": str(work / "mined"), "encoder": str(work / "biencoder"), **task.crossencoder}
    values = {"margin": table["margin"].to_numpy().astype(float)}
    for name in args.judges:
        judge = JUDGES[name](task, {**common, "start": files["start"]}, work)
        filters = {"pairs": str(work / "mined"), "best": max(BEST), "one_per": "both", **judge}
        kept = filter_pairs(FilterSettings(**filters), run(work / f"filtered-{name}"))
        scores = DatasetFolder.open(kept.path / "scores").table(columns=["score"])["score"]
        values[name] = scores.to_numpy().astype(float)
    by_judge: dict[str, Figures] = {
        "style": pruned(DatasetFolder.open(mined.path / task.judged), task.gold),
        "candidates": {"pairs": mined.rows},
    }
    return by_judge | ranked(task, table, values)


def ranked(task: Task, table: pa.Table, values: Mapping[str, NDArray[np.float64]]) -> dict[str, Figures]:
    """The figures of the best candidates by each score, by sums of them, and by one after another.

    "a, then b + c": a chooses the output of each input, and b + c rank the inputs.
    """
    sums = {
        names: sum((standardised(values[name]) for name in names), start=np.zeros(table.num_rows))
        for count in (1, 2, 3)
        for names in combinations(values, count)
    }
    by_scores = {}
    for names, sum_of_names in sums.items():
        order = np.argsort(-sum_of_names, kind="stable")
        best = order[winners(table, order, "both")][: max(BEST)]
        by_scores[" + ".join(names)] = task.figures(table.take(best).to_pylist())
    after = [names for names in (("margin",), ("margin", "likeness")) if values.keys() >= {*names}]
    for name in values:
        for names in after if name not in ("margin", "likeness") else ():
            order, wins, _ = chosen_first(table, values[name], sums[names], "both")
            best = order[wins][: max(BEST)]
            by_scores[f"{name}, then {' + '.join(names)}"] = task.figures(table.take(best).to_pylist())
    return by_scores


def run(folder: Path) -> Run:
    return Run(folder, Progress())


def from_seeds(_: Task, settings: dict[str, Any], work: Path) -> dict[str, Any]:
    """A cross-encoder that learned the seeds and nothing else."""
    return trained({**settings, "base": MINILM}, work / "crossencoder-seeds")


def by_smollm2(task: Task, settings: dict[str, Any], work: Path) -> dict[str, Any]:
    """SmolLM2 as a cross-encoder that learned the seeds and nothing else."""
    learned = {**settings, "base": SMOLLM2, **task.smollm2}
    return {**trained(learned, work / "crossencoder-smollm2"), "dtype": "auto"}


def from_start(task: Task, settings: dict[str, Any], work: Path) -> dict[str, Any]:
    """A cross-encoder that learned other pairs before the seeds, the same for all sets of seeds."""
    start = crossencoder_start(task, settings, work.parent)
    return trained({**settings, "base": start}, work / "crossencoder-start")


def trained(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A cross-encoder's settings as a judge, once it is trained into the folder."""
    settings = {name: value for name, value in settings.items() if name != "start"}
    train_crossencoder(TrainCrossencoderSettings(**settings), run(folder))
    return {"model": str(folder)}


def by_likelihood(*_: Any) -> dict[str, Any]:
    """A language model that learned nothing of the task."""
    return {"model": SMOLLM2, "judge": "likelihood", "max_length": 256, "dtype": "auto"}


def by_likeness(_: Task, settings: dict[str, Any], __: Path) -> dict[str, Any]:
    """A classifier of MiniLM's vectors that tells the seeds from the candidates."""
    return {"model": MINILM, "judge": "likeness", "seeds": settings["seeds"], "max_length": 128}


JUDGES: dict[str, Callable[[Task, dict[str, Any], Path], dict[str, Any]]] = {
    "seeds": from_seeds,
    "smollm2": by_smollm2,
    "start": from_start,
    "likelihood": by_likelihood,
    "likeness": by_likeness,
}
"""What ranks the candidates anew, by its name; each gives the settings of ``filter``."""


def crossencoder_start(task: Task, settings: dict[str, Any], work: Path) -> str:
    """With what a cross-encoder can begin that does not learn to judge pairs from 100 seeds.

    For questions other people's, on single sentences; for summaries the first sentences of the corpus's own
    documents, for the rest of each, and which others of them are near to it.
    """
    seeds = settings["start"]
    settings = {name: value for name, value in settings.items() if name not in ("mined", "encoder")}
    settings |= {"seeds": seeds, "seed": 1, **task.start}
    if task.kind == "summaries":
        pairs: dict[str, Any] = {"inputs": [seeds], "outputs": [seeds]}
        pairs |= {"input_column": "document", "output_column": "summary", "encoder": MINILM}
        mine(MineSettings(**pairs), run(work / "start-mined"))
        settings |= {"mined": str(work / "start-mined"), "encoder": MINILM}
    return str(trained(settings, work / "start")["model"])


def pruned(encoded: DatasetFolder, gold: Set[str]) -> Figures:
    """How many texts were judged by their style (M4), and the share of them, ×100, left out; and of gold."""
    left_out = [
        json.loads(row["row"])["text"] in gold
        for row in encoded.rejects().to_pylist()
        if row["filter"] == "style"
    ]
    kept = [text in gold for text in encoded.table(columns=["text"])["text"].to_pylist()]
    judged, right = len(left_out) + len(kept), sum(left_out) + sum(kept)
    return {
        "texts": judged,
        "left out": round(100 * len(left_out) / max(1, judged), 2),
        "gold": right,
        "gold left out": round(100 * sum(left_out) / max(1, right), 2),
    }


def gold_of(questions: Sequence[Question]) -> Mapping[str, tuple[str, set[str]]]:
    """The passage of each question, and its answers, normalised."""
    return {
        question.question: (question.context, {normalized(answer.text) for answer in question.answers})
        for question in questions
    }


def positive_answers(rows: Sequence[Mapping[str, Any]], gold: Mapping[str, tuple[str, set[str]]]) -> Figures:
    """Shares, ×100, of the first rows that are right in their passage, and in their answer too."""
    passage, answer = [], []
    for row in rows:
        context, answers = gold.get(row["input"], ("", set()))
        passage.append(bool(context) and row["context"] in context)
        answer.append(passage[-1] and normalized(row["answers"]["text"][0]) in answers)
    return shares("passage", passage) | shares("answer", answer)


def right_summaries(rows: Sequence[Mapping[str, Any]], documents: Sequence[Document]) -> Figures:
    """Shares, ×100, of the first rows whose summary is that of their document, and M11's abstractiveness.

    ``of known``: the share of the first rows whose document's summary is known; ``unrelated``: document and
    sentence are both of BBC and Reuters, and whether they fit is not known.
    """
    gold = {document.text: document.summary for document in documents}
    summaries = set(gold.values())
    figures = shares("summary", [gold.get(row["input"]) == row["output"] for row in rows])
    known = [row for row in rows if row["input"] in gold]
    figures |= shares("of known", [gold[row["input"]] == row["output"] for row in known])
    unrelated = [row["input"] not in gold and row["output"] not in summaries for row in rows]
    figures |= shares("unrelated", unrelated)
    for best in BEST:
        some = rows[:best]
        rouge = abstractiveness([row["output"] for row in some], [row["input"] for row in some])
        figures |= {
            f"rouge1 precision@{best}": round(rouge.mean("rouge1"), 2),
            f"rouge2 precision@{best}": round(rouge.mean("rouge2"), 2),
            f"rougeL precision@{best}": round(rouge.mean("rougeL"), 2),
        }
    return figures


def shares(name: str, right: Sequence[bool]) -> Figures:
    return {f"{name}@{best}": round(100 * float(np.mean(right[:best])), 2) for best in BEST}


if __name__ == "__main__":
    main()
