"""What a reader has who follows a page: files and models under the names that the pages give them, all small.

The models are random ones of the architectures that are named, and the bundled model where texts are written, so
a command runs word for word. ``CUT`` makes long ones short.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.conftest import make_bert
from tests.documented import ROOT, Command, run
from tests.tiny_bart import bart_tokenizer, make_bart
from tests.training.few import PEOPLE, PLAYS, document, passage, reading, summaries, write

from pairsmith.core.bundled import TINY, model_path
from pairsmith.runs.executors import run_in_this_process
from pairsmith.runs.work import Advance, Done, Load, R, W
from pairsmith.tools.audit.answers import AnnotatorAnswer, AnnotatorAnswers
from pairsmith.tools.audit.rows import Audit
from pairsmith.tools.settings import AuditSettings

CUT = {
    "generate --task emails.yaml": "--per-input 2",
    "generate --task sts --model embedded:smollm2-135m-instruct": "--limit 2 --per-input 1",
    "train-encoder --base embedded:smollm2-135m-instruct": "--max-steps 1",
    "train-encoder --base pairsmith:tiny": "--max-steps 2",
    "train-biencoder": "--steps 2 --batch-size 4",
    "train-crossencoder": "--steps 2 --batch-size 2",
    "mine --kind summaries": "--style 0",
    "train-tagger": "--epochs 2",
    "train-reader": "--steps 2 --batch-size 4",
    "train-summarizer": "--steps 2 --batch-size 2",
    "evaluate summaries": "--beams 2 --summary-tokens 12",
    "summarize": "--beams 2 --summary-tokens 12",
    "queries": "--model pairsmith:tiny --queries 1 --tries 2",
    "generate --task requests.yaml --model embedded:smollm2-135m-instruct": "--per-input 3",
    "run classifier": "--set texts.model=pairsmith:tiny --set texts.per_input=12 --set classifier.base=org/encoder",
    "train-classifier": "--base org/encoder",
    "negatives --pairs kept --corpus chunks --encoder org/encoder --out": "--positive-share 0",
    "filter-queries": "--within 12 --duplicates 1 --contaminated 1",
    "search --model": "--no-keep-vectors",
    "run retriever": " ".join(
        [
            "--set written.model=pairsmith:tiny --set written.queries=1 --set kept.encoder=org/encoder",
            "--set kept.within=12 --set kept.duplicates=1 --set kept.held_back=0.5 --set kept.contaminated=1",
            "--set negatives.encoder=org/encoder --set negatives.judge=pairsmith:tiny --set retriever.base=org/encoder",
            "--set before.model=org/encoder",
        ]
    ),
    "run quickstart": " ".join(
        [
            "--set pairs.limit=3 --set sample.limit=2 --set without-debiasing.limit=2 --set encoder.max_steps=1",
            "--set sample.model=pairsmith:tiny --set without-debiasing.model=pairsmith:tiny",
            "--set before.model=pairsmith:tiny --set before-six-layers.model=pairsmith:tiny",
            "--set before-six-layers.layers=2",
            *(f"--set {step}.data=few/graded-pairs.tsv" for step in ("before", "before-six-layers", "after")),
        ]
    ),
}
"""By how a command begins, the options that are added to it."""

TINY_QUICKSTART = " --set pairs.model=pairsmith:tiny --set encoder.base=pairsmith:tiny"
TINY_QUICKSTART += " --set encoder.layers=2 --set encoder.attention=base"
"""For the quickstart on pages other than the README, whose pairs and encoder are those of its own model."""

CUT_FILES = {
    "write-or-sample.yaml": {
        "seeds: [1, 2, 3]": "seeds: [1]",
        "rows: [500, 1000, 2000]": "rows: [2]",
        'model: "pairsmith:tiny"': "model: org/encoder",
    }
}
"""By the name of a YAML file that a page shows, what stands in it in place of what."""

EARLIER = {
    "pairs": "generate --task sts --inputs my-sentences.txt",
    "clean": "postprocess --data pairs",
    "encoder": "train-encoder --base org/encoder --data clean",
    "mined": "mine --kind reading --inputs questions.txt --outputs passages.txt --encoder org/encoder",
    "asked": "ask --inputs texts.jsonl --model cloze",
}
"""Folders that other pages make, each by a command that may read those above it."""

READ = {
    "docs/audit.md": ("pairs", "asked"),
    "docs/measuring.md": ("pairs", "encoder"),
    "docs/models.md": ("clean",),
    "docs/mixing.md": ("mined", "asked"),
    "docs/python.md": ("pairs",),
    "docs/report.md": ("pairs",),
    "docs/running.md": ("clean",),
    "docs/sharing.md": ("encoder",),
}
"""Which of them a page takes for granted."""


def shortened(command: Command) -> Command:
    """The command with what ``CUT`` adds to it."""
    text = " ".join(command.words[1:])
    more = [word for begin, added in CUT.items() if text.startswith(begin) for word in added.split()]
    return Command((*command.words, *more), command.into)


# models


def make_roberta(folder: Path) -> Path:
    """Save a random RoBERTa (one layer of 32, context 128) in ``folder``."""
    import torch
    from transformers import RobertaConfig, RobertaModel

    tokenizer = bart_tokenizer()
    tokenizer.model_max_length = 128
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = RobertaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=130,
            bos_token_id=0,
            pad_token_id=1,
            eos_token_id=2,
        )
        model = RobertaModel(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_models(folder: Path) -> dict[str, Path]:
    """From each name of a model in the pages to what stands in for it, in ``folder``."""
    roberta = make_roberta(folder / "roberta")
    tiny = model_path(TINY)
    return {
        "openai-community/gpt2-xl": tiny,
        "MODEL": tiny,
        "FacebookAI/roberta-base": roberta,
        "FacebookAI/roberta-large": roberta,
        "facebook/bart-large": make_bart(folder / "bart", max_position_embeddings=128),
        "org/encoder": make_bert(folder / "bert"),
    }


# files


def furnish(folder: Path, models: dict[str, Path]) -> None:
    """Put into ``folder`` what the pages speak of and do not make."""
    for name in ("examples", "recipes"):
        shutil.copytree(ROOT / name, folder / name)
    for name, model in models.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(model, target_is_directory=True)
    sentences = (ROOT / "examples" / "sentences.txt").read_text().splitlines()[:5]
    for name in ("my-sentences.txt", "sentences.txt"):
        lines(folder / name, sentences)
    lines(folder / "takedown.txt", sentences[:1])
    lines(folder / "corpus.txt", (ROOT / "examples" / "sentences.txt").read_text().splitlines()[5:20])
    (folder / "org" / "sentences" / "data").mkdir(parents=True)
    pq.write_table(pa.table({"text": sentences}), folder / "org" / "sentences" / "data" / "train.parquet")
    header, *graded = (ROOT / "examples" / "graded-pairs.tsv").read_text().splitlines()
    for name in ("my-graded-pairs.tsv", "graded.tsv"):
        lines(folder / name, [header, *graded[:20]])
    (folder / "few").mkdir()
    lines(folder / "few" / "graded-pairs.tsv", [header, *graded[:8]])
    scored = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in graded[20:40]]
    write(folder / "scored.jsonl", [{**row, "score": float(row["score"]) / 5} for row in scored])
    reading(folder / "seeds.jsonl", range(6))
    reading(folder / "start.jsonl", range(6, 12))
    reading(folder / "test.jsonl")
    squad(folder / "squad-train.json", range(8))
    squad(folder / "squad-dev.json", range(8, 12))
    lines(folder / "questions.txt", [f"who plays the {play} so well?" for play in PLAYS])
    lines(folder / "passages.txt", map(passage, range(12)))
    summaries(folder / "news-seeds.jsonl", range(6))
    summaries(folder / "news-test.jsonl", range(10, 12))
    write(folder / "articles.jsonl", [{"document": document(number)} for number in range(6, 12)])
    lines(folder / "headlines.txt", [f"{person} was heard again." for person in PEOPLE])
    retrieval(folder / "my-retrieval")
    triplets(folder / "triplets.jsonl")
    lines(folder / "few.conll", ["Ann B-PER", "Lee I-PER", "lives O", "in O", "Rome B-LOC", ". O"])
    lines(folder / "letters.txt", ["Ann Lee wrote from Rome."])
    write(folder / "texts.jsonl", [{"text": passage(number)} for number in range(12)])
    write(folder / "more-texts.jsonl", [{"text": f"{passage(0)} It was late."}])
    lines(folder / "my-questions.csv", ["mail,question,context", f'7,Who plays?,"{passage(0)}"'])
    lines(folder / "support.csv", ["mail;question", *(f"{n};who plays the {PLAYS[n]}?" for n in range(2))])
    documents(folder)
    requests(folder)


def make_earlier(folder: Path, models: dict[str, Path]) -> Path:
    """The folders of ``EARLIER``, in ``folder``."""
    furnish(folder, models)
    with chdir(folder):
        for name, words in EARLIER.items():
            run(Command(("pairsmith", *words.split(), "--out", name)))
    return folder


def lines(path: Path, texts: Iterable[str]) -> None:
    path.write_text("".join(f"{text}\n" for text in texts))


def triplets(path: Path) -> None:
    """Questions, each with the passage that answers it and another."""
    rows = [
        {"query": f"who plays the {PLAYS[n]}?", "positive": passage(n), "negative": passage(n - 1)}
        for n in range(12)
    ]
    write(path, rows)


def retrieval(folder: Path) -> None:
    """Passages and questions in BEIR's layout."""
    (folder / "qrels").mkdir(parents=True)
    write(folder / "corpus.jsonl", [{"_id": f"d{n}", "text": passage(n)} for n in range(12)])
    write(
        folder / "queries.jsonl", [{"_id": f"q{n}", "text": f"who plays the {PLAYS[n]}?"} for n in range(6)]
    )
    lines(
        folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", *(f"q{n}\td{n}\t1" for n in range(6))]
    )


def requests(folder: Path) -> None:
    """Labelled messages under two sets of names."""
    labelled = [("Where is my parcel?", "delivery"), ("I want my money back.", "refund"), ("It never came, alas.", "delivery")]  # fmt: skip
    lines(folder / "my-requests.csv", ["text,label", *(f'"{text}",{label}' for text, label in labelled)])
    stars = {"refund": 1, "delivery": 2}
    lines(folder / "my-stars.csv", ["body,stars", *(f'"{text}",{stars[label]}' for text, label in labelled)])


def documents(folder: Path) -> None:
    """A folder of documents, and queries to measure with."""
    (folder / "my-documents").mkdir()
    for number in range(12):
        (folder / "my-documents" / f"{number}.md").write_text(f"# {PLAYS[number]}\n\n{passage(number)}\n")
    questions = [f"who plays the {play}?" for play in PLAYS]
    write(folder / "my-queries.jsonl", [{"query": text} for text in questions[:2]])


def squad(path: Path, numbers: range) -> None:
    """Questions in the form of SQuAD 1.1."""
    rows = map(json.loads, Path(reading(path, numbers)).read_text().splitlines())
    articles = []
    for number, row in zip(numbers, rows, strict=True):
        answers = [{"text": row["answers"]["text"][0], "answer_start": 0}]
        qa = {"id": str(number), "question": row["question"], "answers": answers}
        articles.append({"title": "Music", "paragraphs": [{"context": row["context"], "qas": [qa]}]})
    path.write_text(json.dumps({"version": "1.1", "data": articles}))


# people and machines


def label_all(audit: Audit, answers: AnnotatorAnswers, settings: AuditSettings, *_: object) -> None:
    """In the place of the page in a browser: somebody gives every row the first label."""
    for row in audit.rows:
        answers.give(AnnotatorAnswer(settings.annotator, row.id, audit.labels[0]))


def ray_here(
    load: Load[W, R], items: Sequence[W], advance: Advance, *, address: str, **_: Any
) -> Iterator[Done[W, R]]:
    """In the place of a Ray cluster at 10.0.0.1:6379: this process. (Clusters have tests of their own.)"""
    assert address == "10.0.0.1:6379"
    return run_in_this_process(load, items, advance)


def few_pairs(task: Any) -> None:
    """In the place of what mteb fetches for a task of similarities: three pairs."""
    from datasets import Dataset, DatasetDict

    texts = ["A man is playing.", "Two dogs run.", "The stock market fell again."]
    columns = {"sentence1": texts, "sentence2": [texts[0], *texts[:2]], "score": [5.0, 1.0, 0.0]}
    task.dataset = DatasetDict({split: Dataset.from_dict(columns) for split in task.eval_splits})
    task.data_loaded = True
