"""What a recipe of the route of questions will cost: every step is tried."""

import json
import shutil

import pytest

from pairsmith.cli import planning
from pairsmith.cli.planning import plan_recipe
from pairsmith.cli.recipes import load_recipe
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import Reject
from pairsmith.models.span_heads import SpanHeads, save_heads
from pairsmith.steps.questions.plan import _complete_factor

pytestmark = pytest.mark.slow

RECIPE = """
name: small
steps:
  - name: asker
    step: train-asker
    settings: {data: ./data.jsonl, base: BASE, device: cpu, batch_size: 2}
  - name: asked
    step: ask
    settings: {inputs: ./data.jsonl, column: context, model: "@asker", questions: 2, device: cpu}
  - name: teacher
    step: train-teacher
    settings: {data: ./data.jsonl, base: BASE, device: cpu, batch_size: 2, validation: ./data.jsonl}
  - name: answered
    step: relabel
    settings: {data: "@asked", model: "@teacher", device: cpu}
  - name: student
    step: infuse
    settings: {data: "@answered", base: BASE, device: cpu, batch_size: 2}
  - name: taught
    step: train-teacher
    settings: {data: "@answered", base: BASE, device: cpu, batch_size: 2}
  - name: answers
    step: evaluate-qa
    settings: {model: STUDENT, data: ./data.jsonl, device: cpu, bootstrap: 0}
  - name: after
    step: evaluate-paraphrase
    settings: {model: "@student", data: ./pairs.tsv, device: cpu}
"""


@pytest.fixture
def recipe(tmp_path, tiny_bert):
    rows = [
        {"context": text, "question": "Who?", "answers": {"text": [text[:5]], "answer_start": [0]}}
        for text in ("A man is playing.", "Two dogs run on the beach.", "A woman is slicing an onion.")
    ]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tlabel\na man\ta man\t1\na man\tdogs\t0\n")
    path = tmp_path / "small.yaml"
    student = shutil.copytree(tiny_bert, tmp_path / "student")
    save_heads(SpanHeads(16, "questions"), student)
    path.write_text(RECIPE.replace("BASE", str(tiny_bert)).replace("STUDENT", str(student)))
    return load_recipe(path)


def test_what_steps_make_is_what_later_ones_read(recipe, monkeypatch):
    monkeypatch.setattr(planning, "_in_new_process", lambda work, *arguments: work(*arguments))
    estimates = plan_recipe(recipe, Silent())
    assert estimates["asked"].rows == {"train": 6}
    assert estimates["answered"].rows == {"train": 6}
    assert all(estimate.seconds > 0 for estimate in estimates.values())
    assert estimates["student"].disk > 10_000


def test_an_untrained_model_is_taken_to_ask_for_all_its_answers():
    rejects = [Reject.of(str(n), "no end", "", {"question": ""}) for n in range(3)]
    rejects.append(Reject.of("3", "duplicate", "", {"question": "Who?"}))
    assert _complete_factor(rejects, 4) == pytest.approx((30 + 50) / (30 + 0.25 * 50))
    assert _complete_factor([], 4) == 1
