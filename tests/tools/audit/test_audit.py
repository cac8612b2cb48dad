"""People label rows: rows and their order, answers on the disk, agreement, the page, the step."""

import json
import threading
import urllib.request
from dataclasses import asdict, replace
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from tests.folders import write_folder
from tests.tools.report.test_rows import folder

from pairsmith.core.errors import FolderError, InputError, MissingExtra, SettingsError, StorageError
from pairsmith.core.progress import Silent
from pairsmith.data.documents import DOCUMENT
from pairsmith.data.schemas import (
    LABELLED_TEXT,
    MINED_PAIR,
    SCORED_PAIR,
    LabelledText,
    MinedPair,
    ScoredPair,
)
from pairsmith.data.squad import QUESTION
from pairsmith.data.tasks import load_task
from pairsmith.runs import DatasetFolder, Run, Sources
from pairsmith.runs.status import status_lines
from pairsmith.tools.audit.agreement import (
    annotator_agreement,
    label_confusion,
    majority_label,
    results_of,
    wilson,
)
from pairsmith.tools.audit.answers import AnnotatorAnswer, AnnotatorAnswers
from pairsmith.tools.audit.app import AnnotationSession, make_app
from pairsmith.tools.audit.closing import audit_table
from pairsmith.tools.audit.export import export_annotations
from pairsmith.tools.audit.route import audit
from pairsmith.tools.audit.rows import Audit, AuditRow, draw_audit, order_of
from pairsmith.tools.settings import AuditSettings

pytestmark = pytest.mark.slow

ROWS = [ScoredPair(str(i), f"one {i}", f"other {i}", (0.0, 0.5, 1.0)[i % 3]) for i in range(30)]
TOKEN = "right"


def data(path, rows=ROWS, **settings):
    return folder(path / "in", [{"train": rows[:20]}, {"train": rows[20:]}], **settings)


def there(tmp_path, **settings):
    dataset = data(tmp_path)
    return draw_audit(dataset, AuditSettings(data=str(dataset.path), **settings))


def four(labels="abc"):
    """Four rows by hand: two claimed to be a, two b."""
    rows = [AuditRow(str(i), {"text": f"t{i}"}, "ab"[i // 2]) for i in range(4)]
    return Audit(rows, list(labels), ["a", "b"])


def test_rows_are_drawn_by_the_seed_and_shuffled_for_each_annotator(tmp_path):
    dataset = data(tmp_path)
    drawn_audit = draw_audit(dataset, AuditSettings(data=str(dataset.path), rows=12))
    assert len({row.id for row in drawn_audit.rows}) == 12
    assert drawn_audit == draw_audit(dataset, AuditSettings(data=str(dataset.path), rows=12))
    assert drawn_audit != draw_audit(dataset, AuditSettings(data=str(dataset.path), rows=12, seed=1))
    assert drawn_audit.labels == drawn_audit.claimed == ["0", "0.5", "1"]
    ann, bob = (order_of(drawn_audit, name, 0) for name in ("ann", "bob"))
    assert sorted(ann) == sorted(bob) == list(range(12))
    assert ann != bob


def test_labels_may_be_others_than_the_data_have(tmp_path):
    drawn_audit = there(tmp_path, labels=["0", "0.1", "0.5", "0.9"])
    assert (drawn_audit.labels, drawn_audit.claimed) == (["0", "0.1", "0.5", "0.9"], ["0", "0.5", "1"])


def test_rows_without_labels_are_judged_by_named_ones(tmp_path):
    answers = {"text": ["Ann", "she"], "answer_start": [0, 4]}
    question = {"id": "1", "title": "", "context": "Ann; she sang.", "question": "Who?", "answers": answers}
    told = {"id": "1", "document": "It rained.", "summary": "Rain."}
    ranked = [MinedPair(str(i), f"a {i}", f"b {i}", 1.0, i / 20) for i in range(20)]
    for name, schema, rows, texts in (
        (
            "asked",
            QUESTION,
            [question],
            {"context": "Ann; she sang.", "question": "Who?", "answers": "Ann | she"},
        ),
        ("told", DOCUMENT, [told], {"document": "It rained.", "summary": "Rain."}),
        ("mined", MINED_PAIR, ranked, {"input": "a 0", "output": "b 0"}),
    ):
        dataset = rows_folder(tmp_path / name, schema, rows)
        drawn_audit = draw_audit(
            dataset, AuditSettings(data=str(dataset.path), labels=["right", "wrong"], rows=9)
        )
        assert drawn_audit.rows[0].texts.keys() == texts.keys()
        assert all(drawn_audit.rows[0].texts[column].startswith(text[:2]) for column, text in texts.items())
        assert (drawn_audit.claimed, {row.label for row in drawn_audit.rows}) == ([], {""})
        said = {"ann": {drawn_audit.rows[0].id: "right"}}
        results = results_of(drawn_audit, said)
        assert results["confusion"] == {}
        assert audit_table(drawn_audit, results).startswith("ann: 1 of ")
        if name != "mined":
            with pytest.raises(InputError, match=r"have no labels .*; give labels to choose from"):
                draw_audit(dataset, AuditSettings(data=str(dataset.path)))


def test_people_are_told_what_the_labels_of_a_task_mean(tmp_path):
    rows = [asdict(row) for row in ROWS]
    task = load_task("sts").model_dump(mode="json")
    dataset = rows_folder(tmp_path / "in", SCORED_PAIR, rows, {"task": task})
    drawn_audit = draw_audit(dataset, AuditSettings(data=str(dataset.path)))
    assert drawn_audit.meanings["0.5"] == "Two sentences that are somewhat similar."
    session = AnnotationSession(drawn_audit, AnnotatorAnswers(tmp_path), "ann", 0, TOKEN, lambda: None)
    state = session.state()
    assert state["labels"] == ["0", "0.5", "1"]
    assert state["meanings"] == [drawn_audit.meanings[label] for label in state["labels"]]
    other = replace(
        session, audit=draw_audit(dataset, AuditSettings(data=str(dataset.path), labels=["0.5", "0.1"]))
    )
    assert other.state()["meanings"] == [drawn_audit.meanings["0.5"], ""]


def rows_folder(path, schema, rows, settings=None):
    table = pa.Table.from_pylist([row if isinstance(row, dict) else asdict(row) for row in rows], schema)
    return write_folder(path, {"train": table}, step="ask", settings=settings)


def test_data_that_nobody_can_label_are_refused(tmp_path):
    for number, (rows, schema, fault) in enumerate(
        (
            ([], LABELLED_TEXT, "has no rows to label"),
            (
                [LabelledText(str(i), "t", f"label {i}") for i in range(12)],
                LABELLED_TEXT,
                "has more than 9 different labels, but",
            ),
        )
    ):
        dataset = folder(tmp_path / f"in{number}", [{"train": rows}], schema)
        with pytest.raises((InputError, SettingsError), match=fault):
            draw_audit(dataset, AuditSettings(data=str(dataset.path)))
    mined = folder(tmp_path / "mined", [{"train": [MinedPair("1", "a", "b", 1.0, 0.25)]}], MINED_PAIR)
    with pytest.raises(InputError, match="its rows have no labels .a measured score is no label"):
        draw_audit(mined, AuditSettings(data="x"))
    drawn_audit = draw_audit(mined, AuditSettings(data="x", labels=["a", "b"]))
    assert drawn_audit.rows[0].texts == {"input": "a", "output": "b"}


def test_answers_are_on_the_disk_and_the_last_counts(tmp_path):
    answers = AnnotatorAnswers(tmp_path)
    assert answers.give(AnnotatorAnswer("ann", "1", "a"))
    assert not answers.give(AnnotatorAnswer("ann", "1", "b"))  # a second click
    assert answers.give(AnnotatorAnswer("bob", "1", "b"))
    assert answers.give(AnnotatorAnswer("ann", "2", "c"))
    assert answers.take_back("ann").row == "2"
    assert answers.give(AnnotatorAnswer("ann", "1", "c"), again=True)
    for view in (answers, AnnotatorAnswers(tmp_path)):
        assert view.of("ann") == {"1": "c"}
        assert view.of("bob") == {"1": "b"}
        assert list(view.by_annotator()) == ["ann", "bob"]
    assert answers.take_back("nobody") is None
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 5


def test_a_line_that_a_kill_has_cut_is_dropped(tmp_path):
    AnnotatorAnswers(tmp_path).give(AnnotatorAnswer("ann", "1", "a"))
    path = tmp_path / "answers.jsonl"
    whole = path.read_bytes()
    for cut in range(1, len(whole) - 1):
        path.write_bytes(whole + whole[:cut])
        answers = AnnotatorAnswers(tmp_path)
        assert answers.of("ann") == {"1": "a"}
        answers.give(AnnotatorAnswer("ann", "2", "b"))
        assert AnnotatorAnswers(tmp_path).of("ann") == {"1": "a", "2": "b"}


def test_a_file_that_is_none_of_ours_is_refused(tmp_path):
    (tmp_path / "answers.jsonl").write_text("what?\n")
    with pytest.raises(FolderError, match=r"answers.jsonl:1: not a valid answer"):
        AnnotatorAnswers(tmp_path)


def test_many_windows_at_once_lose_nothing(tmp_path):
    answers = AnnotatorAnswers(tmp_path)
    threads = [
        threading.Thread(
            target=lambda k=k: [answers.give(AnnotatorAnswer("ann", f"{i}", str(k))) for i in range(20)]
        )
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers.of("ann")) == 20
    assert AnnotatorAnswers(tmp_path).of("ann") == answers.of("ann")
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 20


def test_a_full_disk_is_named_and_the_label_does_not_count(tmp_path):
    answers = AnnotatorAnswers(tmp_path / "nowhere")
    with pytest.raises(StorageError, match=r"answers.jsonl cannot be written: No such file"):
        answers.give(AnnotatorAnswer("ann", "1", "a"))
    assert answers.of("ann") == {}


def test_confusion_by_hand():
    said = [{"0": "a", "1": "c", "2": "b"}, {"0": "a", "2": "b", "3": "b"}]
    columns = label_confusion(four(), dict(enumerate(said)))
    assert {claimed: column["answers"] for claimed, column in columns.items()} == {"a": 3, "b": 3}
    shares = {
        claimed: [cell["share"] for cell in column["given"].values()] for claimed, column in columns.items()
    }
    assert shares == {"a": [66.67, 0.0, 33.33], "b": [0.0, 100.0, 0.0]}
    assert label_confusion(four(), {}) == {}


def test_intervals_by_hand():
    # Wilson, 8 of 10: (0.8 + 0.19207 ± 1.96 * sqrt(0.016 + 0.0096036)) / 1.384146
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=2e-4)
    assert wilson(0, 5)[0] == 0
    assert wilson(5, 5)[1] == 1


def test_agreement_by_hand():
    said = {"ann": {"0": "a", "1": "a", "2": "b", "3": "b"}, "bob": {"0": "a", "1": "b", "2": "b", "3": "b"}}
    coefficients = annotator_agreement(four("ab"), said)
    # observed 3/4; expected 1/2 * 1/4 + 1/2 * 3/4 = 1/2
    assert coefficients["cohen"] == {"ann, bob": 0.5}
    # alpha: 1 - (2/8) / (2 * 3 * 5 / (8 * 7))
    assert coefficients["krippendorff"] == pytest.approx(1 - 0.25 / (30 / 56), abs=1e-4)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"ann": {"0": "a"}},
        {"ann": {"0": "a", "1": "a"}, "bob": {"0": "a", "1": "a"}},
        {"ann": {"0": "a"}, "bob": {"1": "b"}},
    ],
)
def test_where_nothing_can_be_said_of_agreement_nothing_is(said):
    coefficients = annotator_agreement(four(), said)
    assert coefficients["krippendorff"] is None
    assert set(coefficients["cohen"].values()) <= {None}


def test_numbers_agree_the_more_the_nearer_they_are():
    rows = [AuditRow(str(i), {"text": "t"}, "0") for i in range(6)]
    audit_of = Audit(rows, ["0", "0.5", "1"], ["0"])
    ann = dict(zip("012345", ["0", "0", "0.5", "0.5", "1", "1"], strict=True))
    near, far = {**ann, "0": "0.5"}, {**ann, "0": "1"}
    alphas = [
        annotator_agreement(audit_of, {"ann": ann, "bob": other})["krippendorff"] for other in (near, far)
    ]
    assert alphas[0] > alphas[1]


def test_most_annotators_decide():
    said = {"a": {"1": "x", "2": "x"}, "b": {"1": "x", "2": "y"}, "c": {"1": "y"}}
    assert [majority_label(row, said) for row in ("1", "2", "3")] == ["x", None, None]


def client(tmp_path, annotator="ann", **settings):
    """A browser of an annotator; they share the folder's answers."""
    dataset = data(tmp_path) if not (tmp_path / "in").exists() else None
    audit_of = draw_audit(
        dataset or DatasetFolder.open(tmp_path / "in"), AuditSettings(data="x", rows=6, **settings)
    )
    done = []
    session = AnnotationSession(
        audit_of, AnnotatorAnswers(tmp_path), annotator, 0, TOKEN, lambda: done.append(True)
    )
    return TestClient(make_app(session), base_url="http://127.0.0.1"), audit_of, done


def test_nothing_is_answered_without_the_token_or_by_another_name(tmp_path):
    browser, _, _ = client(tmp_path)
    for path in ("/", "/state", "/audit.js", "/audit.css"):
        assert browser.get(path).status_code == 403
        assert browser.get(path, params={"token": "wrong"}).status_code == 403
        response = browser.get(path, params={"token": TOKEN})
        assert response.status_code == 200
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert response.headers["cache-control"] == "no-store"
        elsewhere = browser.get(path, params={"token": TOKEN}, headers={"host": "evil.example"})
        assert elsewhere.status_code == 400
    for path in ("/answer", "/back", "/finish"):
        assert browser.post(path, json={}).status_code == 403
    assert browser.get("/other.js", params={"token": TOKEN}).status_code == 404
    assert browser.get("/docs", params={"token": TOKEN}).status_code == 404


def test_rows_are_labelled_one_by_one_and_blind(tmp_path):
    browser, audit_of, done = client(tmp_path)
    key = {"params": {"token": TOKEN}}
    state = browser.get("/state", **key).json()
    assert (state["done"], state["total"], state["labels"]) == (0, 6, ["0", "0.5", "1"])
    assert "claimed" not in str(state)
    seen = []
    while state["row"] is not None:
        seen.append(state["row"])
        state = browser.post("/answer", json={"row": state["row"], "place": 2}, **key).json()
        assert state["counted"]
    assert seen == order_of(audit_of, "ann", 0)
    assert AnnotatorAnswers(tmp_path).of("ann") == {audit_of.rows[place].id: "1" for place in seen}
    assert not done
    browser.post("/finish", json={}, **key)
    assert done


def test_a_second_click_a_second_window_and_a_second_annotator(tmp_path):
    (one, audit_of, _), (window, _, _), (bob, _, _) = (
        client(tmp_path),
        client(tmp_path),
        client(tmp_path, "bob"),
    )
    key = {"params": {"token": TOKEN}}
    row = one.get("/state", **key).json()["row"]
    assert one.post("/answer", json={"row": row, "place": 0}, **key).json()["counted"]
    again = one.post("/answer", json={"row": row, "place": 1}, **key).json()
    assert not again["counted"]
    assert again["row"] != row
    assert AnnotatorAnswers(tmp_path).of("ann") == {audit_of.rows[row].id: "0"}
    assert bob.get("/state", **key).json()["done"] == 0
    assert window.get("/audit.js", **key).status_code == 200


def test_the_last_label_is_taken_back(tmp_path):
    browser, audit_of, _ = client(tmp_path)
    key = {"params": {"token": TOKEN}}
    first = browser.get("/state", **key).json()["row"]
    second = browser.post("/answer", json={"row": first, "place": 0}, **key).json()["row"]
    browser.post("/answer", json={"row": second, "place": 0}, **key)
    back = browser.post("/back", json={}, **key).json()
    assert (back["row"], back["done"]) == (second, 1)
    assert browser.post("/answer", json={"row": second, "place": 1}, **key).json()["counted"]
    assert AnnotatorAnswers(tmp_path).of("ann") == {
        audit_of.rows[first].id: "0",
        audit_of.rows[second].id: "0.5",
    }


@pytest.mark.parametrize(
    "body",
    [
        {"row": 6, "place": 0},
        {"row": -1, "place": 0},
        {"row": "nowhere", "place": 0},
        {"row": 0, "place": 9},
        {"row": 0, "place": -1},
        {},
        {"row": 0, "place": 0, "x": 1},
    ],
)
def test_labels_that_are_none_are_refused(tmp_path, body):
    browser, _, _ = client(tmp_path)
    assert browser.post("/answer", json=body, params={"token": TOKEN}).status_code == 422
    assert AnnotatorAnswers(tmp_path).by_annotator() == {}


def test_results_hold_what_was_said(tmp_path):
    results = results_of(four("ab"), {"ann": {"0": "a", "1": "b"}, "bob": {"0": "a"}})
    assert results["labelled"] == {"ann": 2, "bob": 1}
    assert results["labels"] == {"0": "a", "1": "b"}
    assert results["as_in_data"] == {
        "ann": {"answers": 2, "same": 1, "share": 50.0, "share_ci": [9.45, 90.55]},
        "bob": {"answers": 1, "same": 1, "share": 100.0, "share_ci": [20.65, 100.0]},
    }
    table = audit_table(four("ab"), results)
    assert table.splitlines()[:2] == [
        "ann: 2 of 4 rows labelled; as in the data: 1 of 2, 50.0 % [9.4, 90.5]",
        "bob: 1 of 4 rows labelled; as in the data: 1 of 1, 100.0 % [20.6, 100.0]",
    ]
    assert "66.7" in table


def test_columns_of_wide_labels_are_aligned():
    rows = [AuditRow(str(i), {"text": f"t{i}"}, ("正しい", "b")[i // 2]) for i in range(4)]
    drawn_audit = Audit(rows, ["正しい", "b"], ["正しい", "b"])
    table = audit_table(drawn_audit, results_of(drawn_audit, {"ann": {"0": "正しい", "2": "b"}}))
    assert table.splitlines()[-4:-1] == [
        "    given   正しい        b",
        "   正しい    100.0      0.0",
        "        b      0.0    100.0",
    ]


class Person(Silent):
    """Hears of the page's address and labels every row over real HTTP, then finishes."""

    def __init__(self, rows):
        self.rows = rows
        self.thread = None

    def link(self, text):
        if text.startswith("open http"):
            self.thread = threading.Thread(target=self.label, args=[text.removeprefix("open ")])
            self.thread.start()

    def label(self, address):
        base, _, token = address.partition("/?token=")

        def ask(path, body=None):
            data_sent = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(
                f"{base}/{path}?token={token}", data_sent, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)

        state = ask("state")
        for _ in range(self.rows):
            state = ask("answer", {"row": state["row"], "place": 0})
        ask("finish", {})


def test_the_step_serves_stops_and_goes_on(tmp_path):
    data(tmp_path)
    settings = AuditSettings(data=str(tmp_path / "in"), rows=5)
    for rows, done in ((2, 2), (3, 5)):
        person = Person(rows)
        results = audit(settings, Run(tmp_path / "out", person))
        person.thread.join()
        assert results["labelled"] == {"me": done}
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert written["labelled"] == {"me": 5}
    assert set(written["labels"].values()) == {"0"}
    finished = audit(settings.model_copy(update={"finish": True}), Run(tmp_path / "out", Silent()))
    assert finished["labelled"] == {"me": 5}
    with pytest.raises(FolderError, match="rows: 5 there, 6 here"):
        audit(settings.model_copy(update={"rows": 6}), Run(tmp_path / "out", Silent()))


def test_a_port_that_is_taken_is_named(tmp_path):
    import socket

    data(tmp_path)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(SettingsError, match=f"--port {port}: Address already in use"):
            audit(AuditSettings(data=str(tmp_path / "in"), port=port), Run(tmp_path / "out", Silent()))


def test_what_is_not_installed_is_named(tmp_path, monkeypatch):
    data(tmp_path)
    monkeypatch.setattr("pairsmith.tools.audit.route.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'pairsmith\[audit\]'"):
        audit(AuditSettings(data=str(tmp_path / "in")), Run(tmp_path / "out", Silent()))


@pytest.mark.parametrize(
    "settings",
    [
        {"annotator": " "},
        {"annotator": "a\x00"},
        {"labels": ["a", "a"]},
        {"labels": [" "]},
        {"labels": list("0123456789")},
    ],
)
def test_settings_that_cannot_do(settings):
    with pytest.raises(ValueError, match=r"annotator|labels"):
        AuditSettings(data="x", **settings)


def test_what_people_said_is_exported(tmp_path):
    dataset = data(tmp_path, [ScoredPair(str(i), f"one {i}", "other <&>", i % 2 / 1) for i in range(4)])
    audit_of = draw_audit(dataset, AuditSettings(data="x", labels=["0", "0.5", "1"]))
    ids = [row.id for row in audit_of.rows]
    said = {"ann": {ids[0]: "0.5", ids[1]: "1"}, "bob": {ids[0]: "0.5", ids[1]: "0"}}
    results = results_of(audit_of, said)
    for _ in range(2):  # over those of before
        export_annotations(audit_of, said, results["labels"], tmp_path / "out", "hash", Sources())
    labelled = DatasetFolder.open(tmp_path / "out" / "labelled")
    assert labelled.table().to_pylist() == [
        {
            "id": ids[0],
            "sentence1": f"one {ids[0]}",
            "sentence2": "other <&>",
            "score": 0.5,
            "annotators": 2,
            "share": 1.0,
        }
    ]
    assert json.loads(labelled.rejects().to_pylist()[0]["row"])["given"] == "1 by 1, 0 by 1"
    tasks = json.loads((tmp_path / "out" / "label-studio.json").read_text())
    assert [len(task["annotations"]) for task in tasks] == [2, 2, 0, 0]
    assert tasks[0]["annotations"][0]["result"][0]["value"] == {"choices": ["0.5"]}
    config = ElementTree.parse(tmp_path / "out" / "label-studio.xml").getroot()
    assert [choice.get("value") for choice in config.iter("Choice")] == ["0", "0.5", "1"]
    assert {text.get("name") for text in config.iter("Text")} <= tasks[0]["data"].keys()
    records = json.loads((tmp_path / "out" / "argilla.json").read_text())
    assert [answer["value"] for answer in records[1]["responses"]["label"]] == ["1", "0"]
    assert {answer["status"] for record in records for answer in record["responses"]["label"]} == {
        "submitted"
    }
    people = {answer["user_id"] for record in records for answer in record["responses"]["label"]}
    assert len(people) == 2


def test_names_stay_names_in_what_is_exported(tmp_path):
    rows = [LabelledText(str(i), f"t{i}", ('"<b>&', "x")[i % 2]) for i in range(4)]
    audit_of = draw_audit(data(tmp_path, rows, schema=LABELLED_TEXT), AuditSettings(data="x"))
    said = {"ann": {row.id: row.label for row in audit_of.rows}}
    export_annotations(
        audit_of, said, results_of(audit_of, said)["labels"], tmp_path / "out", "hash", Sources()
    )
    labels = DatasetFolder.open(tmp_path / "out" / "labelled").table().column("label").to_pylist()
    assert sorted(labels) == ['"<b>&', '"<b>&', "x", "x"]
    config = ElementTree.parse(tmp_path / "out" / "label-studio.xml").getroot()
    assert {choice.get("value") for choice in config.iter("Choice")} == {'"<b>&', "x"}


def test_nothing_that_the_browser_gets_tells_the_label(tmp_path):
    rows = [ScoredPair(f"sts-{i}-{i % 2}", f"one {i}", f"other {i}", i % 2 / 1) for i in range(6)]
    data(tmp_path, rows)
    browser, _, _ = client(tmp_path)
    state = browser.get("/state", params={"token": TOKEN}).text
    assert "sts-" not in state


def test_a_disk_that_is_full_for_a_while_loses_nothing(tmp_path, monkeypatch):
    browser, audit_of, _ = client(tmp_path)
    key = {"params": {"token": TOKEN}}
    browser.post("/answer", json={"row": 0, "place": 0}, **key)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pairsmith.tools.audit.answers.os.fsync", full)
    refused = browser.post("/answer", json={"row": 1, "place": 0}, **key)
    assert refused.status_code == 507
    assert refused.text.endswith("cannot be written: No space left on device")
    assert "default-src 'none'" in refused.headers["content-security-policy"]
    monkeypatch.undo()
    assert browser.post("/answer", json={"row": 2, "place": 0}, **key).json()["counted"]
    ids = [row.id for row in audit_of.rows]
    assert AnnotatorAnswers(tmp_path).of("ann") == {ids[0]: "0", ids[2]: "0"}


def test_starting_over_keeps_what_was_said_aside(tmp_path):
    data(tmp_path)
    settings = AuditSettings(data=str(tmp_path / "in"), rows=5, finish=True)
    audit(settings, Run(tmp_path / "out", Silent()))
    AnnotatorAnswers(tmp_path / "out").give(AnnotatorAnswer("ann", "0", "never"))
    with pytest.raises(FolderError, match=r"answers.jsonl: ann gave row 0 the label 'never', but this audit"):
        audit(settings, Run(tmp_path / "out", Silent()))
    other = settings.model_copy(update={"labels": ["yes", "no"]})
    results = audit(other, Run(tmp_path / "out", Silent(), fresh=True))
    assert results["labelled"] == {}
    assert "never" in (tmp_path / "out" / "answers.jsonl.1").read_text()


def test_a_stopped_audit_is_not_done_but_its_results_are_there(tmp_path, monkeypatch):
    data(tmp_path)
    run = Run(tmp_path / "out", Silent())

    def stopped(there_, answers, *_):
        answers.give(AnnotatorAnswer("me", there_.rows[0].id, "1"))
        raise KeyboardInterrupt

    monkeypatch.setattr("pairsmith.tools.audit.app.serve", stopped)
    with pytest.raises(KeyboardInterrupt):
        audit(AuditSettings(data=str(tmp_path / "in"), rows=5), run)
    assert json.loads((tmp_path / "out" / "results.json").read_text())["labelled"] == {"me": 1}
    assert status_lines(tmp_path / "out") == [f"{tmp_path / 'out'}: audit, stopped"]
    monkeypatch.setattr("pairsmith.tools.audit.app.serve", lambda *_: None)
    audit(AuditSettings(data=str(tmp_path / "in"), rows=5), run)
    assert status_lines(tmp_path / "out") == [f"{tmp_path / 'out'}: audit, finished"]


def test_scores_of_a_model_have_no_table(tmp_path):
    rows = [ScoredPair(str(i), f"one {i}", "other", i / 30) for i in range(30)]
    dataset = data(tmp_path, rows)
    audit_of = draw_audit(dataset, AuditSettings(data="x", labels=["good", "bad"]))
    assert label_confusion(audit_of, {"ann": {"3": "good"}}) == {}
    assert "1 of 30 rows labelled" in audit_table(audit_of, results_of(audit_of, {"ann": {"3": "good"}}))


def test_rows_of_one_id_are_refused_as_answers_would_be_of_both(tmp_path):
    rows = [ScoredPair("a", f"one {n}", "other", 0.5) for n in range(2)]
    dataset = folder(tmp_path / "in", [{"train": rows}])
    with pytest.raises(InputError, match=r"two rows have the id 'a', .*; give each row an id of its own"):
        draw_audit(dataset, AuditSettings(data=str(dataset.path)))
