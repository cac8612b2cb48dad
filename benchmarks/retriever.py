"""A retriever for documents without labels: how much each step of the recipe is worth.

python benchmarks/retriever.py --data DATA --work FOLDER --json FILE
python benchmarks/retriever.py --data DATA --work FOLDER --json FILE \\
    --base embedded:smollm2-135m-instruct --rate 1e-4

SQuAD's development articles are the documents, their paragraphs the chunks, and people's questions the
queries to measure with. SmolLM2 writes three questions for each paragraph. An encoder is measured as it is;
trained on all of these (``all``); on those that MiniLM leads back to their chunks (``kept``); on these with
hard negatives (``hard``) and with what SmolLM2's likelihood says of them (``judged``); and, as a ceiling, on
people's questions about half of the articles (``people``), for which all are measured on the other half, too
(``other half``). BM25 stands beside them. Decay 0 writes the questions without counter-prompts; ``distances``
tells both kinds apart. Interrupted, it goes on where it was; several processes may share the work, each with
``--seeds``, ``--decay`` and ``--variants`` of its own.
"""

import argparse
import fcntl
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common import write
from mining import MINILM, SMOLLM2, run
from mining_data import write_lines
from mining_downstream import half_interval
from pairsmith.data.chunk_rows import read_chunks
from pairsmith.data.documents import with_title
from pairsmith.data.squad import Question, read_questions
from pairsmith.models.encode import encode_texts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import DatasetFolder
from pairsmith.steps.evaluate.retrieval import evaluate_retrieval
from pairsmith.steps.evaluate.retrieval_settings import BM25, EvaluateRetrievalSettings
from pairsmith.steps.negatives.route import negatives
from pairsmith.steps.negatives.settings import NegativesSettings
from pairsmith.steps.retrieval.filter_queries import filter_queries
from pairsmith.steps.retrieval.queries import write_queries
from pairsmith.steps.retrieval.settings import FilterQueriesSettings, QueriesSettings
from pairsmith.steps.training.retriever import train_retriever
from pairsmith.steps.training.settings import TrainRetrieverSettings

FIGURES = ("ndcg@10", "recall@100", "map")
VARIANTS = ("distances", "all", "kept", "hard", "judged", "people")
Figures = dict[str, Any]


@dataclass(frozen=True)
class Files:
    """The chunks; people's questions about all of them, and about those of the second half of the articles;
    and, to train on, people's questions about the first half."""

    chunks: str
    questions: str
    other_half: str
    of_people: str


@dataclass(frozen=True)
class Base:
    """A model to start from, its learning rate, where what is made of it lies, and how many of a row's
    negatives it learns, if not all."""

    model: str
    rate: float
    folder: Path
    drawn: int | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--articles", type=int, default=48)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--base", default=MINILM)
    parser.add_argument("--rate", type=float, default=2e-5, help="Learning rate.")
    parser.add_argument("--decay", type=float, nargs="*", default=[100.0, 0.0])
    parser.add_argument("--variants", nargs="*", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument(
        "--drawn", type=int, help="Negatives of each row that are learned, drawn from five. Unset: all."
    )
    parser.add_argument("--bm25", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    work = args.work.resolve()
    questions = list(read_questions(args.data / "squad" / "dev-v1.1.from-explorer.json.gz"))
    files = write_files(questions, args.articles, work)
    base = Base(args.base, args.rate, work / args.base.rpartition(":")[2], args.drawn)
    settings = {"articles": args.articles, "rates": {args.base: args.rate}}
    keep = partial(kept, args.json, settings)
    if args.bm25:
        keep((BM25, "before", "0"), lambda: measured(BM25, files, work / "bm25"))
    keep((args.base, "before", "0"), lambda: measured(args.base, files, base.folder / "before"))
    for seed in args.seeds:
        for decay in args.decay:
            for variant in args.variants:
                name = f"{variant}, decay {decay:g}" if variant != "people" else variant
                if args.drawn and variant in ("hard", "judged"):
                    name += f", {args.drawn} drawn"
                whose = "written" if variant == "distances" else args.base
                keep((whose, name, str(seed)), partial(one, files, work, base, seed, decay, variant))
    print(json.dumps(means(results(args.json)), indent=1))


def write_files(questions: Sequence[Question], articles: int, work: Path) -> Files:
    """The files of the first articles, in a fixed random order."""
    titles = sorted({question.title for question in questions})
    order = np.random.default_rng(0).permutation(len(titles))[:articles]
    picked = [titles[i] for i in order]
    half = set(picked[: len(picked) // 2])
    some = [question for question in questions if question.title in picked]
    texts = list(dict.fromkeys((question.title, question.context) for question in some))
    ids = {context: f"{title}-{place}" for place, (title, context) in enumerate(texts)}
    rows = [
        {"id": ids[text], "title": title.replace("_", " "), "text": text, "document": title}
        for title, text in texts
    ]
    titled = [
        (question.title, {"query": question.question, "chunk": ids[question.context]}) for question in some
    ]
    to_learn = [
        {
            "query": question.question,
            "positive": question.context,
            "title": question.title.replace("_", " "),
        }
        for question in some
        if question.title in half
    ]
    parts = {
        "chunks": rows,
        "questions": [row for _, row in titled],
        "other-half": [row for title, row in titled if title not in half],
        "of-people": to_learn,
    }
    paths = {name: work / f"{name}.jsonl" for name in parts}
    for name, part in parts.items():
        if not paths[name].exists():
            write_lines(paths[name], part)
    return Files(*map(str, paths.values()))


def one(files: Files, work: Path, base: Base, seed: int, decay: float, variant: str) -> Figures:
    """The figures of one set of written queries, or of a retriever that learned them."""
    folder = base.folder / f"seed-{seed}-decay-{decay:g}-{variant}"
    if variant == "people":
        folder = base.folder / f"seed-{seed}-people"
        return trained(base, [files.of_people], files, folder, seed)
    rows = Written(files, work / f"seed-{seed}-decay-{decay:g}", seed, decay)
    if variant == "distances":
        return distances(files.chunks, rows.all())
    how: dict[str, Any] = {"objective": "kl"} if variant == "judged" else {}
    if base.drawn and variant in ("hard", "judged"):
        how["negatives"] = base.drawn
        folder = folder.with_name(f"{folder.name}-{base.drawn}")
    makers: Mapping[str, Callable[[], DatasetFolder]] = {
        "all": rows.all,
        "kept": rows.kept,
        "hard": rows.hard,
        "judged": rows.judged,
    }
    data = makers[variant]()
    return {"rows": data.rows} | trained(base, [str(data.path)], files, folder, seed, **how)


@dataclass(frozen=True)
class Written:
    """Written queries, and what is made of them, each step in a folder of its own."""

    files: Files
    folder: Path
    seed: int
    decay: float

    def all(self) -> DatasetFolder:
        """All that were written, whatever they are."""
        given = {"chunks": self.files.chunks, "model": SMOLLM2, "kinds": ["question"], "shard_size": 512}
        settings = QueriesSettings(**given, seed=self.seed, decay=self.decay)
        return write_queries(settings, run(self.folder / "written"))

    def kept(self) -> DatasetFolder:
        """Those that lead back to their chunks."""
        settings = FilterQueriesSettings(
            queries=str(self.all().path),
            corpus=[self.files.chunks],
            encoder=MINILM,
            evaluation=[self.files.questions],
        )
        return filter_queries(settings, run(self.folder / "kept"))

    def hard(self) -> DatasetFolder:
        """These with hard negatives."""
        settings = NegativesSettings(pairs=str(self.kept().path), corpus=[self.files.chunks], encoder=MINILM)
        return negatives(settings, run(self.folder / "hard"))

    def judged(self) -> DatasetFolder:
        """These with negatives, and what a likelihood judge says of each."""
        settings = NegativesSettings(
            pairs=str(self.kept().path),
            corpus=[self.files.chunks],
            encoder=MINILM,
            judge=SMOLLM2,
            judge_kind="likelihood",
            last_rank=6,
            positive_share=0,
            fewer="reject",
        )
        return negatives(settings, run(self.folder / "judged"))


def trained(base: Base, data: Sequence[str], files: Files, folder: Path, seed: int, **how: Any) -> Figures:
    """The figures of a retriever trained on some rows."""
    settings = {"base": base.model, "learning_rate": [base.rate], "batch_size": 64, "max_length": 256}
    settings |= {"data": list(data), "seed": seed, "attention_dropout": 0.0, **how}
    train_retriever(TrainRetrieverSettings(**settings), run(folder))
    return measured(str(folder), files, Path(f"{folder}-measured"))


def measured(model: str, files: Files, folder: Path) -> Figures:
    """The figures of a model on people's questions about all articles, and about the second half."""
    length = {} if model == BM25 else {"max_length": 256}
    evaluate = partial(EvaluateRetrievalSettings, model=model, corpus=[files.chunks], **length)
    every = evaluate_retrieval(evaluate(data=files.questions), run(folder / "all"))
    half = evaluate_retrieval(evaluate(data=files.other_half), run(folder / "other-half"))
    names = [name for figure in FIGURES for name in (figure, f"{figure}_ci")]
    return {name: every[name] for name in names} | {"other half": {name: half[name] for name in names}}


def distances(chunks: str, written: DatasetFolder) -> Figures:
    """How near queries are to their chunks and to the chunks beside these, as MiniLM sees them.

    Cosines are means over the queries; shares, ×100, of the queries whose chunk is nearer than those beside
    it, and the nearest, or among the three nearest, of all.
    """
    corpus = list(read_chunks(chunks))
    place = {chunk.id: i for i, chunk in enumerate(corpus)}
    of_text = {chunk.text: i for i, chunk in enumerate(corpus)}
    rows = written.table(columns=["query", "chunk"]).to_pylist()
    encoder = load_sentence_encoder(MINILM)
    vectors = encode_texts(encoder, [with_title(chunk.title, chunk.text) for chunk in corpus])
    query_vectors = encode_texts(encoder, [row["query"] for row in rows])
    cosines = query_vectors @ vectors.T  # MiniLM gives vectors of length 1
    own = np.array([place[row["chunk"]] for row in rows])
    right = cosines[np.arange(len(rows)), own]
    beside = [[of_text[text] for text in corpus[i].neighbours] for i in own]
    highest = [cosines[row, places].max() if places else -1 for row, places in enumerate(beside)]
    mean = [cosines[row, places].mean() for row, places in enumerate(beside) if places]
    rank = (cosines > right[:, None]).sum(axis=1)
    return {
        "queries": len(rows),
        "rejects": len(written.rejects()),
        "cosine of own": round(100 * float(right.mean()), 2),
        "cosine of beside": round(100 * float(np.mean(mean)), 2),
        "nearer than beside": round(100 * float((right > np.array(highest)).mean()), 2),
        "nearest": round(100 * float((rank < 1).mean()), 2),
        "among three": round(100 * float((rank < 3).mean()), 2),
    }


def results(path: Path) -> Figures:
    """The figures that a file holds."""
    figures: Figures = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else {}
    return figures


def kept(
    path: Path, settings: Mapping[str, Any], keys: Sequence[str], measure: Callable[[], Figures]
) -> None:
    """Add figures to the file, where other processes may do so, too, unless it has them."""

    def place(every: Figures) -> Figures:
        for key in keys[:-1]:
            every = every.setdefault(key, {})
        return every

    if keys[-1] in place(results(path)):
        return
    figures = measure()
    print(json.dumps({", ".join(keys): figures}), flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        every = results(path)
        place(every)[keys[-1]] = figures
        write(path, {"settings": dict(settings), "results": every, "means": means(every)})


def means(every: Mapping[str, Any]) -> Figures:
    """nDCG@10 of each base's variants: the mean over the seeds and half of its 95 % interval.

    On people's questions about all articles, and about the second half of them.
    """
    table: Figures = {}
    for base, variants in every.items():
        for variant, seeds in variants.items():
            if base != "written":
                of_all = [seed["ndcg@10"] for seed in seeds.values()]
                of_half = [seed["other half"]["ndcg@10"] for seed in seeds.values()]
                table[f"{base}, {variant}"] = [
                    (round(float(np.mean(values)), 2), half_interval(values)) for values in (of_all, of_half)
                ]
    return table


if __name__ == "__main__":
    main()
