"""What a student learns of people's questions, by the number of passes over them.

python benchmarks/students.py --data DATA --work FOLDER --json FILE

MiniLM as a bi-encoder learns the questions of 32 of SQuAD's articles and QAMR's, without a teacher, and
answers those of the 16 other articles. Interrupted, it goes on where it was.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from common import write
from mining import MINILM, run
from pairsmith.steps.evaluate.qa import evaluate_qa
from pairsmith.steps.evaluate.settings import EvaluateQaSettings
from pairsmith.steps.training.settings import InfuseSettings
from pairsmith.steps.training.student import infuse
from quip_data import write_quip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--epochs", type=float, nargs="*", default=[1, 2])
    parser.add_argument("--rate", type=float, default=5e-4)
    args = parser.parse_args()
    write_quip(args.data, args.work / "quip")
    results = {f"{epochs:g}": figures(args.work, epochs, args.rate) for epochs in args.epochs}
    write(args.json, {"settings": {"rate": args.rate}, "results": results})


def figures(work: Path, epochs: float, rate: float) -> dict[str, Any]:
    """What the student answers after so many passes, with 95 % intervals."""
    student = work / f"student-{epochs:g}"
    learned = [str(work / "quip" / f"{name}.jsonl") for name in ("squad-train", "qamr")]
    settings = InfuseSettings(
        base=MINILM,
        data=learned,
        labels="answers",
        epochs=epochs,
        learning_rate=[rate],
        max_length=258,
        attention_dropout=0,
        dtype="auto",
    )
    infuse(settings, run(student))
    answered = work / f"answers-{epochs:g}"
    test = str(work / "quip" / "squad-test.jsonl")
    evaluate_qa(EvaluateQaSettings(model=str(student), data=test, dtype="auto"), run(answered))
    figures = json.loads((answered / "results.json").read_text(encoding="utf-8"))
    print(epochs, figures, flush=True)
    return {name: figures[name] for name in ("count", "exact", "f1", "exact_ci", "f1_ci")}


if __name__ == "__main__":
    main()
