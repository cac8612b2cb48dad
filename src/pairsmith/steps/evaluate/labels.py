"""How well labels separate generated pairs: the mean cosine of each label's pairs under an encoder.

Without self-debiasing, a small language model writes much the same texts for every instruction, so that the
labels mean nothing. Then the mean cosines are nearly equal; no human labels are needed to see it.

This step is no ``Evaluation``: generated pairs are no test set, so the rows of all splits count, and a plan
can run the step on some of them.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pairsmith.core.errors import InputError
from pairsmith.core.model_names import model_revision
from pairsmith.core.progress import Progress
from pairsmith.core.text_width import left_aligned
from pairsmith.data.labelled_rows import row_value
from pairsmith.data.readers import two_texts
from pairsmith.data.sources import open_source
from pairsmith.data.tasks.spec import label_text
from pairsmith.methods.dino.evaluation import LabelledPairs, separation
from pairsmith.metrics.similarity import cosine_similarity_rows
from pairsmith.models.encode import encode_texts, not_finite
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import Run, hash_source, resolve_dtype
from pairsmith.runs.identity import Identity
from pairsmith.steps.evaluate.results import Evaluated, evaluate_once
from pairsmith.steps.evaluate.settings import EvaluateLabelsSettings
from pairsmith.steps.shared import refuse_sources


def evaluate_labels(settings: EvaluateLabelsSettings, run: Run) -> dict[str, Any]:
    """Compute the cosine of each pair, write the results into the run's folder, and show a table.

    ``predictions.jsonl`` has a line for each pair: its texts, label and cosine. ``results.json``, whose
    content is returned, has for each label (``labels``) the ``mean`` cosine with its 95 % interval (``ci``)
    and the number of pairs (``count``). If labels are numbers, it also has the difference between the means
    of the highest and the lowest label (``gap`` and ``gap_ci``).
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, data=settings.data)
    inputs, models = {"data": hash_source(settings.data)}, {"model": model_revision(settings.model)}
    identity = Identity.of("evaluate labels", settings.deciding(), inputs, models)
    return evaluate_once(
        run, identity, settings, partial(_compute, settings, run.progress), table=labels_table
    )


def check_evaluate_labels(settings: EvaluateLabelsSettings, _labels: Collection[str]) -> None:
    """Read the pairs, and raise an error if they have a fault."""
    read_labelled_pairs(settings.data)


def _compute(settings: EvaluateLabelsSettings, progress: Progress) -> Evaluated:
    pairs = read_labelled_pairs(settings.data)
    encoder = load_sentence_encoder(settings.model, device=settings.device, dtype=settings.dtype)
    texts = sorted({text for first, second, _ in pairs for text in (first, second)})
    rows = {text: row for row, text in enumerate(texts)}
    with progress.task("encode", len(texts), "sentences") as bar:
        vectors = encode_texts(encoder, texts, batch_size=settings.batch_size, advance=bar.advance)
    if not np.isfinite(vectors).all():
        raise not_finite("the model gives vectors")
    sides = [vectors[[rows[pair[side]] for pair in pairs]] for side in (0, 1)]
    cosines = cosine_similarity_rows(*sides)
    figures = separation(pairs, cosines, draws=settings.bootstrap, seed=settings.seed)
    return figures, [
        {"sentence1": first, "sentence2": second, "label": label, "cosine": round(float(cosine), 4)}
        for (first, second, label), cosine in zip(pairs, cosines, strict=True)
    ]


def read_labelled_pairs(source: str) -> LabelledPairs:
    """Read scored or labelled pairs as (sentence1, sentence2, label); a score is the label as text."""
    pairs: list[tuple[str, str, str]] = []
    for where, row in open_source(source).rows():
        name = "score" if "score" in row else "label"
        if not {"sentence1", "sentence2", name} <= row.keys():
            raise InputError(
                f"{where}: evaluate labels needs pairs with the columns sentence1, sentence2 and score or "
                f"label, as `pairsmith generate` writes them; found {', '.join(row)}"
            )
        first, second = two_texts(row, ("sentence1", "sentence2"), where)
        pairs.append((first, second, label_text(row_value(row, name, where))))
    if not pairs:
        raise InputError(f"{source}: has no pairs; give a file or folder with at least one")
    return pairs


def labels_table(results: Mapping[str, Any]) -> str:
    """The results as a text table with a line for each label."""
    lines = [f"{'label':<12}{'pairs':>7}  mean cosine (95 %)"]
    for label, figures in results["labels"].items():
        lines.append(
            f"{left_aligned(label, 12)}{figures['count']:>7}  {_shown(figures['mean'], figures['ci'])}"
        )
    if "gap" in results:
        lines.append(f"highest minus lowest  {_shown(results['gap'], results['gap_ci'])}")
    return "\n".join(lines)


def _shown(value: float, limits: Sequence[float] | None) -> str:
    return f"{value:.2f}" + ("" if limits is None else f"  [{limits[0]:.2f}, {limits[1]:.2f}]")
