"""Token by token: what self-debiasing did to rows that were written."""

import pytest
from tests.tools.report.test_report import page_of, text_of
from tests.tools.report.test_rows import SHARDS, folder

from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.data.tasks import load_task
from pairsmith.methods.dino.traces import traces
from pairsmith.models.language.loading import load_model
from pairsmith.runs import Run
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings

pytestmark = pytest.mark.slow

TEXTS = ["A man plays the flute.", "Two dogs run."]


@pytest.fixture
def written(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    settings = GenerateSettings(inputs=str(tmp_path / "texts.txt"), per_input=1, tries=1, seed=5)
    return generate(settings, Run(tmp_path / "in", Silent()))


def test_the_texts_are_those_that_were_written(written):
    task = load_task("sts")
    all_traces = list(traces(task, load_model("pairsmith:tiny"), TEXTS, task.decoding, 5))
    assert [(trace.input, trace.label) for trace in all_traces] == [
        (text, label) for text in TEXTS for label in task.label_names
    ]
    kept = {(row["sentence1"], row["score"]): row["sentence2"] for row in written.table().to_pylist()}
    assert {(t.input, float(t.label)): t.text for t in all_traces if not t.rejected} == kept
    for trace in all_traces:
        assert "".join(token.token for token in trace.tokens).startswith(trace.text[:10])
        for token in trace.tokens:
            assert 0 <= token.steered <= 1
            assert 0 < token.plain <= 1
            assert token.lowered[1] >= token.lowered[2] - 1e-6
    steered = [token for trace in all_traces if trace.counters for token in trace.tokens]
    assert max(abs(token.plain - token.steered) for token in steered) > 0.05
    free = [token for trace in all_traces if not trace.counters for token in trace.tokens]
    assert all(token.plain == pytest.approx(token.steered, abs=1e-6) for token in free)


def test_the_page_shows_them(written, tmp_path):
    page = page_of(tmp_path / "in", tmp_path / "out", traces=1, model="pairsmith:tiny")
    text = text_of(page)
    assert "Token by token" in text
    assert "A man plays the flute. → 0.5 (against 1):" in text
    assert "A man plays the flute. → 1:" in text
    assert "Two dogs run. →" not in text
    assert page.count("Probability of each token") == 2
    assert "Token by token" not in text_of(page_of(tmp_path / "in", tmp_path / "other"))


def test_what_cannot_be_traced_is_said(written, tmp_path, tiny_gpt2):
    with pytest.raises(SettingsError, match="--traces needs --model"):
        page_of(tmp_path / "in", tmp_path / "out", traces=1)
    with pytest.raises(ModelError, match="were written by another model"):
        page_of(tmp_path / "in", tmp_path / "out", traces=1, model=str(tiny_gpt2))
    dataset = folder(tmp_path / "rows", SHARDS)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "training.json").write_text("{}")
    with pytest.raises(SettingsError, match="generate wrote as --data; .*model is not one"):
        page_of(tmp_path / "model", tmp_path / "out", traces=1, model="pairsmith:tiny")
    with pytest.raises(ModelError, match="were written by another model"):
        page_of(dataset.path, tmp_path / "out", traces=1, model="pairsmith:tiny")
