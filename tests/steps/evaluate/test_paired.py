import json
import shutil
from itertools import islice

import numpy as np
import pytest
from typer.testing import CliRunner

from pairsmith.cli.app import make_app
from pairsmith.core.errors import InputError, PairsmithError
from pairsmith.core.progress import Progress, Silent
from pairsmith.metrics.ranking import MEASURES
from pairsmith.runs import Run
from pairsmith.steps.evaluate import retrieval as module
from pairsmith.steps.evaluate.figures import resampled_means
from pairsmith.steps.evaluate.paired import Predictions, paired_differences
from pairsmith.steps.evaluate.retrieval import check_evaluate_retrieval, evaluate_retrieval
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings
from pairsmith.steps.evaluate.retrievers import retrieve

pytestmark = pytest.mark.slow

WORDS = ("horn", "lute", "bell", "drum", "harp", "onion", "market", "dog", "beach", "horse")


def write(folder, *, documents=150, queries=60, relevant=1):
    """A set in BEIR's layout whose queries are two words of the document that answers them, or of none."""
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS, 5)) for _ in range(documents)]
    query_texts = [" ".join([*rng.choice(texts[n].split(), 2), rng.choice(WORDS)]) for n in range(queries)]
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", texts), ("queries", query_texts)):
        lines = (json.dumps({"_id": f"{name[0]}{n}", "text": text}) + "\n" for n, text in enumerate(rows))
        (folder / f"{name}.jsonl").write_text("".join(lines))
    table = (f"q{n}\tc{n}\t{relevant}\n" for n in range(queries))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(table))
    return folder


@pytest.fixture(scope="module")
def measured(tmp_path_factory, tiny_bert):
    """A folder with data, and the results of BM25 with and without stems, and of a random encoder."""
    folder = tmp_path_factory.mktemp("measured")
    data = write(folder / "data")
    for name, model in (("words", "bm25"), ("random", str(tiny_bert))):
        evaluate(model, data, folder / name)
    return folder


def evaluate(model, data, out, progress=None, **more):
    settings = EvaluateRetrievalSettings(model=str(model), data=str(data), device="cpu", **more)
    return evaluate_retrieval(settings, Run(out, progress or Silent()))


def lines(out):
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


def test_predictions_are_read_line_by_line_and_more_than_once(tmp_path):
    (tmp_path / "predictions.jsonl").write_text('{"f1": 1.0}\n{"f1": 0.5}\nno JSON\n')
    predictions = Predictions(tmp_path)
    for _ in range(2):
        assert list(islice(predictions, 2)) == [{"f1": 1.0}, {"f1": 0.5}]  # the third line is not parsed yet
    assert len(predictions) == 3
    with pytest.raises(InputError, match="predictions.jsonl cannot be read: No such file"):
        list(Predictions(tmp_path / "none"))


def by_numpy(folder, there, name, seed):
    """The mean difference and its interval: of each resample the means of both over the same queries."""
    x, y = (np.array([line[name] for line in lines(out)]) for out in (folder, there))
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(1000):
        chosen = rng.integers(0, len(x), size=len(x))
        draws.append(x[chosen].mean() - y[chosen].mean())
    return x.mean() - y.mean(), np.percentile(draws, [2.5, 97.5])


def test_each_difference_is_over_the_same_queries(measured, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(measured / "words", out)
    before = (out / "predictions.jsonl").stat().st_mtime_ns
    results = evaluate("bm25", measured / "data", out, Progress(), against=str(measured / "random"))
    assert (out / "predictions.jsonl").stat().st_mtime_ns == before  # what is there is not computed again
    assert json.loads((out / "results.json").read_text()) == results
    comparison = results["against"]
    assert (comparison["folder"], comparison["model"]) == (str(measured / "random"), "bert")
    for name in MEASURES:
        difference, limits = by_numpy(out, measured / "random", name, seed=0)
        assert comparison[name]["difference"] == pytest.approx(difference, abs=1e-4)
        assert comparison[name]["difference_ci"] == pytest.approx(list(limits), abs=1e-4)
        verdict = "better" if limits[0] > 0 else "within noise"  # the other has never learned anything
        assert comparison[name]["verdict"] == verdict
    assert comparison["recall@100"]["verdict"] == "better"
    shown = capsys.readouterr().out.splitlines()
    low, high = comparison["recall@100"]["difference_ci"]
    figure = f"{comparison['recall@100']['difference']:+.2f}"
    assert f"recall@100    {figure:>6}  [{low:+.2f}, {high:+.2f}]  better" in shown
    assert f"compared with {measured / 'random'} (bert), over the same queries" in shown
    other = evaluate(
        results["about"]["model"], measured / "data", tmp_path / "anew", against=str(out), seed=4
    )
    assert {other["against"][name]["difference"] for name in MEASURES} == {0.0}
    assert {other["against"][name]["verdict"] for name in MEASURES} == {"within noise"}
    without = evaluate("bm25", measured / "data", out, Progress())  # asked for no comparison
    assert "against" not in without
    assert json.loads((out / "results.json").read_text()) == without
    assert "compared" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("each", "verdict", "limits"),
    [
        ([2.0] * 9, "better", [2.0, 2.0]),
        ([-2.0] * 9, "worse", [-2.0, -2.0]),
        ([0.0] * 9, "within noise", [0.0, 0.0]),
        ([5.0, -5.0] * 9, "within noise", None),
    ],
)
def test_verdicts_by_hand(each, verdict, limits):
    there = {name: [40.0 + 3 * n for n in range(len(each))] for name in MEASURES}
    figures = {name: [a + b for a, b in zip(values, each, strict=True)] for name, values in there.items()}
    own, earlier = (resampled_means(means, bootstrap=200, seed=0) for means in (figures, there))
    comparison = paired_differences(own, earlier)["map"]
    assert comparison["verdict"] == verdict
    assert comparison["difference"] == sum(each) / len(each)
    assert limits is None or comparison["difference_ci"] == limits


def changed(out, **about):
    results = json.loads((out / "results.json").read_text())
    results["about"] |= about
    (out / "results.json").write_text(json.dumps(results))


def test_an_earlier_result_may_change_during_the_evaluation(measured, tmp_path, monkeypatch):
    words = shutil.copytree(measured / "words", tmp_path / "words")

    def removing(*given):
        shutil.rmtree(words)
        return retrieve(*given)

    monkeypatch.setattr(module, "retrieve", removing)
    results = evaluate("bm25", measured / "data", tmp_path / "new", against=str(words))
    assert results["against"]["map"]["difference"] == 0.0


def test_what_cannot_be_compared_is_refused(measured, tmp_path):
    def refused(against, said, *, data=measured / "data", **more):
        with pytest.raises(PairsmithError) as error:
            evaluate("bm25", data, tmp_path / "out", against=str(against), **more)
        assert said in str(error.value)
        settings = EvaluateRetrievalSettings(model="bm25", data=str(data), against=str(against), **more)
        with pytest.raises(PairsmithError) as error:  # as a recipe does before its first step
            check_evaluate_retrieval(settings, ())
        assert said in str(error.value)
        assert not (tmp_path / "out").exists()

    words = measured / "words"
    other = "measured on other queries, documents or relevance (there 60 queries, 150 documents; here"
    refused(words, f"{other} 59 queries, 150 documents)", data=write(tmp_path / "fewer", queries=59))
    refused(words, f"{other} 60 queries, 151 documents)", data=write(tmp_path / "more", documents=151))
    refused(words, other, data=write(tmp_path / "judged", relevant=2))
    refused(words, "measured with depth 1000, here it is 200", depth=200)
    refused(words, "measured with exclude_own False, here it is True", exclude_own=True)
    refused(measured, "holds no results of this evaluation; give a folder that evaluate retrieval wrote")
    refused(tmp_path / "nowhere", "give a folder that evaluate retrieval wrote")

    def copied(name):
        return shutil.copytree(words, tmp_path / name)

    changed(copied("sts"), step="evaluate sts")
    refused(tmp_path / "sts", "has results of evaluate sts; give a folder that evaluate retrieval wrote")
    changed(copied("begun"), complete=False)
    refused(tmp_path / "begun", "this evaluation is not finished; run its command again")
    (copied("damaged") / "predictions.jsonl").write_text("")
    refused(tmp_path / "damaged", "predictions.jsonl has changed since it was written")
    changed(copied("old"), format=1)
    refused(tmp_path / "old", "has format 1, but this pairsmith reads format 2")


def test_a_result_is_not_compared_with_itself_nor_without_resamples(measured):
    with pytest.raises(PairsmithError, match="is what --against reads; give another folder as --out"):
        evaluate("bm25", measured / "data", measured / "words", against=str(measured / "words"))
    with pytest.raises(ValueError, match="against needs resamples for its intervals"):
        EvaluateRetrievalSettings(model="bm25", data="x", against="y", bootstrap=0)


def test_the_command_says_what_comes_next_and_warns_of_few_queries(tmp_path):
    data = write(tmp_path / "data", queries=5)
    words = ["evaluate", "retrieval", "--model", "bm25", "--data", str(data)]
    first = CliRunner().invoke(make_app(), [*words, "--out", str(tmp_path / "one")])
    assert first.exit_code == 0, first.output
    assert first.stderr.splitlines()[-1] == f"next: pairsmith search --model bm25 --corpus {data}"
    assert "compared with" not in first.stdout
    more = ["--language", "none", "--out", str(tmp_path / "two"), "--against", str(tmp_path / "one")]
    second = CliRunner().invoke(make_app(), [*words, *more])
    assert "5 queries are few, which makes the intervals too narrow" in second.stderr
    assert f"compared with {tmp_path / 'one'} (bm25), over the same queries" in second.stdout
