"""Are rows and weights still those of an earlier commit? Hashes of small runs of most steps.

    python benchmarks/same_rows.py --work DIR --json before.json
    python benchmarks/same_rows.py --work OTHER --json after.json --compare before.json

Run the first line at the old commit and the second at the new one, on one machine. Every step is called
through the command line, on one thread, with the models that pairsmith has at hand; the program that runs is
the one in the script's own repository. Where something differs, the exit code is 1.
"""

import argparse
import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from common import write

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MINILM = "embedded:all-minilm-l6-v2"
TRAINED = f"--base {MINILM} --eval-steps 2 --device cpu --dtype float32"
ENCODED = f"--encoder {MINILM}"

# Folder of the run, and the command that fills it; {x} is a file or folder in the work folder.
RUNS = {
    "pairs": "generate --task sts --model pairsmith:tiny --inputs {sentences.txt} --limit 40 --seed 7",
    "texts": "generate --task movie-reviews --model pairsmith:tiny --per-input 10 --seed 7",
    "undebiased": "generate --task sts --model pairsmith:tiny --inputs {sentences.txt} --limit 20 --decay 0",
    "clean": "postprocess --data {pairs}",
    "encoder": f"train-encoder --data {{clean}} --max-steps 4 {TRAINED}",
    "ranked": f"train-encoder --data {{clean}} --objective contrastive --max-steps 4 {TRAINED}",
    "mined": f"mine --inputs {{questions.txt}} --outputs {{sentences.txt}} {ENCODED} --k 8",
    "read": f"mine --kind reading --inputs {{questions.txt}} --outputs {{passages.txt}} {ENCODED}",
    "summed": f"mine --kind summaries --inputs {{documents.jsonl}} --outputs {{more.jsonl}} {ENCODED}",
    "biencoder": f"train-biencoder --seeds {{seeds.jsonl}} --steps 4 {TRAINED}",
    "crossencoder": f"train-crossencoder --seeds {{seeds.jsonl}} --steps 4 {TRAINED}",
    "filtered": "filter --pairs {mined} --model {crossencoder} --best 5",
    "asked": "ask --inputs {passages.txt} --model cloze --questions 4",
    "told": "ask --inputs {passages.txt} --model pairsmith:tiny --questions 2",
    "teacher": f"train-teacher --data {{answered.jsonl}} --max-steps 4 {TRAINED}",
    "relabelled": "relabel --data {asked} --model {teacher}",
    "student": f"infuse --data {{relabelled}} --max-steps 4 {TRAINED}",
    "mixed": "mix --data {pairs} --data {undebiased} --rows 50",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="an empty folder")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--compare", type=Path, help="what an earlier commit gave")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    furnish(args.work)
    hashes: dict[str, dict[str, str]] = {}
    for name, command in RUNS.items():
        words = [word for part in command.split() for word in [at(part, args.work)]]
        subprocess.run(
            [sys.executable, "-m", "pairsmith", *words, "--quiet", "--out", str(args.work / name)],
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(EXAMPLES.parent / "src")},
        )
        hashes[name] = contents(args.work / name)
        print(name, len(hashes[name]), "files", flush=True)
    results: dict[str, Any] = {"hashes": hashes}
    write(args.json, results)
    if args.compare:
        before = json.loads(args.compare.read_bytes())["hashes"]
        differing = [name for name in RUNS if hashes[name] != before.get(name)]
        print("different:", ", ".join(differing)) if differing else print("all the same")
        sys.exit(bool(differing))


def at(word: str, work: Path) -> str:
    """The word of a command with ``{name}`` as a path below the work folder."""
    return str(work / word[1:-1]) if word.startswith("{") else word


def contents(folder: Path) -> dict[str, str]:
    """The hash of each file of rows, rejects or weights below a folder."""
    files = [path for path in folder.rglob("*") if path.suffix in (".parquet", ".safetensors")]
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def furnish(work: Path) -> None:
    """The inputs: the example sentences, and questions, passages and documents made of them."""
    sentences = (EXAMPLES / "sentences.txt").read_text(encoding="utf-8").splitlines()[:240]
    (work / "sentences.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    passages = [" ".join(sentences[start : start + 5]) for start in range(0, 100, 5)]
    questions = [f"Who says that {sentence[:1].lower()}{sentence[1:-1]}?" for sentence in sentences[:40]]
    documents = [
        {"document": "\n".join(sentences[i : i + 6]), "summary": sentences[i]} for i in range(0, 240, 6)
    ]
    seeds = [
        {"input": question, "output": sentence}
        for question, sentence in zip(questions, sentences, strict=False)
    ]
    answered = [
        {
            "context": passage,
            "question": f"What comes before the word {passage.split()[3]}?",
            "answers": {"text": [passage.split()[0]], "answer_start": [0]},
        }
        for passage in passages
    ]
    (work / "passages.txt").write_text("\n".join(passages) + "\n", encoding="utf-8")
    (work / "questions.txt").write_text("\n".join(questions) + "\n", encoding="utf-8")
    put(work / "documents.jsonl", documents[:20])
    put(work / "more.jsonl", documents[20:])
    put(work / "seeds.jsonl", seeds)
    put(work / "answered.jsonl", answered)


def put(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
