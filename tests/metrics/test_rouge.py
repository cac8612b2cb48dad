import logging
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.core.errors import InputError, MissingExtra
from pairsmith.metrics.rouge import (
    abstractiveness,
    check_rouge,
    rouge_scores,
    rouge_warning,
    uncounted_letters,
)


@pytest.fixture
def _installed():
    pytest.importorskip("rouge_score", reason="the extra eval is not installed")


needs_rouge = pytest.mark.usefixtures("_installed")


@needs_rouge
def test_scores_by_hand():
    # Words: "the dog ran home" and "the dogs run to the home". Stems of words of four letters and more:
    # dogs -> dog, home -> home; "ran" and "run" stay. Shared words: the, dog, home: precision 3/4, recall 3/6.
    # Shared pairs: "the dog": 1/3 and 1/5. Longest common subsequence: the dog home.
    scores = rouge_scores(["The dog ran home."], ["The dogs run to the home"])
    assert scores.mean("rouge1") == pytest.approx(100 * 2 * 3 / (4 + 6))
    assert scores.mean("rouge2") == pytest.approx(100 * 2 * 1 / (3 + 5))
    assert scores.mean("rougeL") == pytest.approx(100 * 2 * 3 / (4 + 6))
    assert scores.mean("rougeLsum") == scores.mean("rougeL")


@needs_rouge
def test_l_is_of_the_whole_text_and_lsum_of_lines():
    # Lines swapped: as a whole only one of the two can be in order.
    scores = rouge_scores(["x y\nv w"], ["v w\nx y"])
    assert (scores.mean("rougeL"), scores.mean("rougeLsum")) == (pytest.approx(50.0), pytest.approx(100.0))


@needs_rouge
def test_means_over_summaries_and_an_empty_one_scores_nothing():
    scores = rouge_scores(["x y", ""], ["x y", "x y"])
    assert [scores.mean(name) for name in scores.per_text] == [50.0] * 4
    assert scores.per_text == dict.fromkeys(("rouge1", "rouge2", "rougeL", "rougeLsum"), (100.0, 0.0))


@needs_rouge
def test_abstractiveness_is_the_share_of_the_summary_that_its_document_has():
    document = "A storm hit the coast on Monday. Two boats sank."
    scores = abstractiveness(["Two boats sank.", "A storm sank ships"], [document] * 2)
    # Second: a, storm, sank of four words; "a storm" of three pairs; "a storm sank" in order.
    assert scores.mean("rouge1") == pytest.approx(100 * (1 + 3 / 4) / 2)
    assert scores.mean("rouge2") == pytest.approx(100 * (1 + 1 / 3) / 2)
    assert scores.mean("rougeL") == pytest.approx(100 * (1 + 3 / 4) / 2)
    assert scores.per_text["rouge1"] == pytest.approx((100.0, 75.0))
    assert set(scores.per_text) == {"rouge1", "rouge2", "rougeL"}


@needs_rouge
def test_results_state_their_settings():
    about = rouge_scores(["x"], ["x"]).to_json()
    assert {name: about[name] for name in ("rouge1", "rouge2", "rougeL", "rougeLsum", "count")} == {
        "rouge1": 100.0,
        "rouge2": 0.0,
        "rougeL": 100.0,
        "rougeLsum": 100.0,
        "count": 1,
    }
    assert about["settings"]["use_stemmer"] is True
    assert about["settings"]["measure"] == "fmeasure"
    assert about["settings"]["package"].startswith("rouge-score 0.")
    shares = abstractiveness(["x"], ["x"]).to_json()
    assert shares["settings"]["measure"] == "precision"
    assert "rougeLsum" not in shares


def common(a, b):
    """Length of the longest common subsequence, by its recursive definition."""
    if not a or not b:
        return 0
    if a[-1] == b[-1]:
        return 1 + common(a[:-1], b[:-1])
    return max(common(a[:-1], b), common(a, b[:-1]))


def shared(a, b):
    return sum(min(a.count(ngram), b.count(ngram)) for ngram in set(a))


words = st.lists(st.sampled_from("xyz"), min_size=1, max_size=6)


@needs_rouge
@given(summary=words, other=words)
def test_every_figure_against_its_definition(summary, other):
    pairs, of_other = (list(pairwise(text)) for text in (summary, other))
    matches = [shared(summary, other), shared(pairs, of_other), common(summary, other)]
    lengths = [len(summary), len(pairs), len(summary)]
    against = [len(other), len(of_other), len(other)]
    f = rouge_scores([" ".join(summary)], [" ".join(other)])
    p = abstractiveness([" ".join(summary)], [" ".join(other)])
    expected = [200 * m / max(1, n + k) for m, n, k in zip(matches, lengths, against, strict=True)]
    assert [f.mean("rouge1"), f.mean("rouge2"), f.mean("rougeL")] == pytest.approx(expected)
    expected = [100 * m / max(1, n) for m, n in zip(matches, lengths, strict=True)]
    assert [p.mean("rouge1"), p.mean("rouge2"), p.mean("rougeL")] == pytest.approx(expected)


def test_what_cannot_be_scored_is_refused():
    for measure in (rouge_scores, abstractiveness):
        with pytest.raises(InputError, match="no summaries"):
            measure([], [])
        with pytest.raises(ValueError, match="got 2 for 1"):
            measure(["x"], ["x", "y"])


def test_without_the_package_the_install_command_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(MissingExtra, match=r"rouge-score.*pip install 'pairsmith\[eval\]'"):
        rouge_scores(["x"], ["x"])
    with pytest.raises(MissingExtra, match="rouge-score"):
        check_rouge()


@needs_rouge
def test_scoring_leaves_the_logging_as_it_is():
    handlers = list(logging.getLogger().handlers)
    rouge_scores(["x"], ["x"])
    assert logging.getLogger().handlers == handlers


_ALONE = """
import logging, socket
def refused(*_): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = refused
from pairsmith.metrics.rouge import rouge_scores
rouge_scores(["x"], ["x"])
assert not logging.getLogger().handlers
"""


@needs_rouge
def test_a_fresh_process_scores_without_warnings_network_or_output():
    done = subprocess.run([sys.executable, "-W", "error", "-c", _ALONE], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_letters_that_do_not_count():
    assert uncounted_letters(["größer 1", "É"]) == 3 / 8
    assert rouge_warning(["The naïve dog runs home, as dogs do. " + "It runs and runs. " * 20]) == ""
    assert rouge_warning(["Die Straße ist länger."]).startswith(
        "11.1 % of the references' letters do not count"
    )
    assert rouge_warning(["東京"]).startswith("100.0 %")


@needs_rouge
def test_words_of_any_script():
    pairs = [("東京で雨", "東京の雨"), ("Die größere Straße", "die große Straße"), ("हिन्दी भाषा", "हिन्दी")]
    written, references = zip(*pairs, strict=True)
    scores = rouge_scores(written, references, "any")
    # Three of four letters; two of three words, without stems; one word of two, which is all of the other text.
    assert scores.per_text["rouge1"] == pytest.approx((75.0, 100 * 2 / 3, 100 * 2 / 3))
    assert scores.settings["use_stemmer"] is False
    published = rouge_scores(written, references)
    assert published.per_text["rouge1"][0] == published.per_text["rouge1"][2] == 0.0
    assert abstractiveness(["東京"], ["東京で雨"], "any").mean("rouge1") == 100.0
