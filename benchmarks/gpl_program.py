"""Runs the program of GPL's authors, unchanged, and notes what it computes; ``beside_gpl.py`` calls it.

    PYTHON benchmarks/gpl_program.py CHECKOUT NOTES ARGUMENTS

CHECKOUT is a copy of https://github.com/UKPLab/gpl, PYTHON an interpreter of an environment with ``beir`` and
a ``sentence-transformers`` before 3, whose training loop is that of the program's time. ARGUMENTS are those
of ``gpl.train``, as JSON. NOTES is a file for the loss of each step, and the processor seconds of each stage.
Its BM25 needs a server, and ``easy_elasticsearch`` to reach it; only this name is there, and never called.
One constant is changed: its warm-up of 1,000 steps becomes a tenth of the steps, as there are so few.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from types import ModuleType
from typing import Any


def main() -> None:
    checkout, notes, arguments = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    names: Any = ModuleType("easy_elasticsearch")
    names.ElasticSearchBM25 = None
    sys.modules[names.__name__] = names
    sys.path.insert(0, str(checkout.resolve()))
    from gpl import toolkit  # type: ignore[import-not-found]  # the program's own, on the path only now
    from gpl.train import SentenceTransformer, train  # type: ignore[import-not-found]  # likewise

    seconds, losses = {"start": process_time()}, list[float]()

    def timed(owner: Any, name: str, stage: str) -> None:
        """Note what each call of a method takes, beside what it did before."""
        work: Callable[..., Any] = getattr(owner, name)

        def noting(*given: Any, **named: Any) -> Any:
            begun = process_time()
            result = work(*given, **named)
            seconds[stage] = seconds.get(stage, 0.0) + process_time() - begun
            return result

        setattr(owner, name, noting)

    fit, forward = SentenceTransformer.fit, toolkit.MarginDistillationLoss.forward

    def fit_few(self: Any, *given: Any, **named: Any) -> None:
        fit(self, *given, **named | {"warmup_steps": math.ceil(named["steps_per_epoch"] / 10)})

    def noted(self: Any, *given: Any) -> Any:
        loss = forward(self, *given)
        losses.append(float(loss.detach()))
        return loss

    SentenceTransformer.fit, toolkit.MarginDistillationLoss.forward = fit_few, noted
    for owner, name, stage in (
        (toolkit.NegativeMiner, "run", "mining"),
        (toolkit.PseudoLabeler, "__init__", "labelling"),
        (toolkit.PseudoLabeler, "run", "labelling"),
        (SentenceTransformer, "fit", "training"),
    ):
        timed(owner, name, stage)
    train(**arguments)
    seconds["all"] = process_time()
    notes.write_text(json.dumps({"seconds": seconds, "losses": losses}), encoding="utf-8")


if __name__ == "__main__":
    main()
