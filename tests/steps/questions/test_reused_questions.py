"""``ask --reuse``: passages that are unchanged keep their questions, and the folder is that of a run without it."""

import json
from itertools import groupby

import pytest
from tests.heard import Heard
from tests.runs.test_array_job import files, one_rank
from tests.tiny_bart import document, make_asker

from pairsmith.core.errors import FolderError
from pairsmith.core.progress import Silent
from pairsmith.data.documents import Document
from pairsmith.methods.quip.causal_generator import CausalGenerator
from pairsmith.methods.quip.cloze_generator import ClozeGenerator
from pairsmith.methods.quip.passages import Passage
from pairsmith.methods.quip.sequence_generator import SequenceGenerator
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.mapped import RecordShard
from pairsmith.steps.questions.ask import ask
from pairsmith.steps.questions.plan import plan_ask
from pairsmith.steps.questions.reused import EarlierQuestions
from pairsmith.steps.questions.settings import AskSettings

pytestmark = pytest.mark.slow

LONG = " ".join(document(number) for number in (5, 6))  # two passages
OLD = [document(0), document(1), "all was long ago", LONG, "x" * 900, document(2)]
NEW = [
    document(0),
    document(3),  # inserted
    document(1),
    "all was long ago",
    LONG + " It was late.",  # changed: both passages are others
    "x" * 900,
    document(2),
    document(4),  # appended
]
KINDS = {
    "cloze": {"model": "cloze"},
    "drawn": {"model": "asker", "top_p": 1.0, "tries": 2},
    "searched": {"model": "asker", "decoding": "beams", "beams": 4},
    "told": {"model": "pairsmith:tiny", "top_p": 1.0, "tries": 2, "batch_size": 3},
    "told, searched": {"model": "pairsmith:tiny", "decoding": "beams", "beams": 3},
}
SLOWEST = [pytest.param(kind, marks=pytest.mark.long) for kind in ("told", "told, searched")]


@pytest.fixture(scope="module")
def asker(tmp_path_factory):
    return str(make_asker(tmp_path_factory.mktemp("askers") / "asker"))


@pytest.fixture
def asking(asker, tmp_path):
    """A function that asks about texts into a folder."""

    def asked(name, texts, progress=None, fresh=False, kind="cloze", **more):
        (tmp_path / f"{len(texts)}.txt").write_text("\n".join(texts))
        given = {
            "questions": 2,
            "max_length": 24 if kind == "cloze" else 40,
            "shard_size": 2,
            "device": "cpu",
        }
        given |= {"inputs": [str(tmp_path / f"{len(texts)}.txt")], **KINDS[kind], **more}
        given["model"] = asker if given["model"] == "asker" else given["model"]
        return ask(AskSettings(**given), Run(tmp_path / name, progress or Silent(), fresh=fresh))

    return asked


@pytest.fixture
def asked_about(monkeypatch):
    """The id and text of each passage that a question generator is given."""
    passages_given = []
    for generator in (ClozeGenerator, SequenceGenerator, CausalGenerator):

        def noting(self, passages, *more, generate=generator.generate):
            passages_given.extend((passage.id, passage.text) for passage in passages)
            return generate(self, passages, *more)

        monkeypatch.setattr(generator, "generate", noting)
    return passages_given


@pytest.mark.parametrize("kind", ["cloze", "drawn", "searched", *SLOWEST])
def test_only_passages_that_changed_are_asked_about_and_the_bytes_are_the_same(
    kind, asking, asked_about, tmp_path
):
    asking("old", OLD, kind=kind, shard_size=4)
    old = set(asked_about)
    asked_about.clear()
    asking("plain", NEW, kind=kind)
    every = list(asked_about)
    asked_about.clear()
    heard = Heard()
    folder = asking("again", NEW, heard, kind=kind, reuse=str(tmp_path / "old"))
    assert asked_about == [passage for passage in every if passage not in old]
    assert {text for _, text in asked_about} & set(NEW) == {document(3), document(4)}
    assert any(text.endswith("It was late.") for _, text in asked_about)
    kept = len(every) - len(asked_about)
    told = f"{kept} of {len(every)} passages to do are as in {tmp_path / 'old'} and keep their questions"
    assert told in heard.lines
    assert files(tmp_path / "again") == files(tmp_path / "plain")
    assert folder.manifest.fingerprint == DatasetFolder.open(tmp_path / "plain").manifest.fingerprint
    assert folder.rows or kind == "searched"  # no question that this random model finds has an end
    assert folder.rejects().num_rows > 1

    asked_about.clear()
    heard = Heard()
    asking("third", NEW, heard, kind=kind, reuse=str(tmp_path / "again"))  # made with --reuse itself
    assert not asked_about
    assert not any(line.startswith("loading") for line in heard.lines)
    assert files(tmp_path / "third") == files(tmp_path / "plain")


@pytest.mark.parametrize("kind", ["drawn", SLOWEST[0]])
def test_rejects_come_passage_by_passage_whatever_the_batch(kind, asking, tmp_path):
    asking("out", OLD, kind=kind, shard_size=6)
    ids = DatasetFolder.open(tmp_path / "out").rejects()["id"].to_pylist()
    passages = [name.partition("-")[0] for name in ids]
    assert len(set(passages)) == sum(1 for _ in groupby(passages)) > 2
    asking("other", OLD, kind=kind, shard_size=6, batch_size=1)
    assert files(tmp_path / "other") == files(tmp_path / "out")


def test_texts_may_be_added_in_another_file_and_column(asking, asked_about, tmp_path):
    asking("old", OLD)
    rows = [{"story": text} for text in [*OLD, document(7)]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[3:]))
    (tmp_path / "first.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:3]))
    given = {"inputs": [str(tmp_path / "first.jsonl"), str(tmp_path / "rows.jsonl")], "column": "story"}
    asking("plain", OLD, **given)
    asked_about.clear()
    asking("again", OLD, reuse=str(tmp_path / "old"), **given)
    assert [text for _, text in asked_about] == [document(7)]
    assert files(tmp_path / "again") == files(tmp_path / "plain")


@pytest.mark.parametrize("kind", ["cloze", "searched"])
def test_passages_that_are_drawn_now_and_were_drawn_then_keep_theirs(kind, asking, asked_about, tmp_path):
    asking("old", OLD, kind=kind, sample=4)
    old = set(asked_about)
    asked_about.clear()
    asking("plain", NEW, kind=kind, sample=5)
    drawn = set(asked_about)
    assert drawn & old < drawn
    asked_about.clear()
    asking("again", NEW, kind=kind, sample=5, reuse=str(tmp_path / "old"))
    assert set(asked_about) == drawn - old
    assert files(tmp_path / "again") == files(tmp_path / "plain")
    asking("every", NEW, kind=kind)
    asked_about.clear()
    asking("all", NEW, kind=kind, reuse=str(tmp_path / "again"))
    assert not set(asked_about) & drawn
    assert files(tmp_path / "all") == files(tmp_path / "every")


def test_a_stopped_run_goes_on_with_it_or_without(asking, tmp_path, monkeypatch):
    asking("old", OLD)
    asking("plain", NEW)
    with monkeypatch.context() as patched:

        def stopping(self, passages, *more, generate=ClozeGenerator.generate):
            if passages:
                raise KeyboardInterrupt
            return generate(self, passages, *more)

        patched.setattr(ClozeGenerator, "generate", stopping)
        for name in ("with", "without"):
            with pytest.raises(KeyboardInterrupt):
                asking(name, NEW, reuse=str(tmp_path / "old"))
            assert len(list((tmp_path / name / "data").iterdir())) == 1  # the shard without new passages
    asking("with", NEW, reuse=str(tmp_path / "old"))
    asking("without", NEW)
    assert files(tmp_path / "with") == files(tmp_path / "plain") == files(tmp_path / "without")


@pytest.mark.long
def test_workers_and_ranks_take_over_the_same(asking, tmp_path):
    asking("old", OLD, sample=5)
    asking("plain", NEW, sample=6)
    asking("by-two", NEW, sample=6, workers=2, reuse=str(tmp_path / "old"))
    given = AskSettings(
        inputs=[str(tmp_path / "8.txt")], model="cloze", questions=2, max_length=24, shard_size=2, sample=6,
        device="cpu", reuse=str(tmp_path / "old"),
    )  # fmt: skip
    for number in range(2):
        one_rank(given, tmp_path / "ranks", number, 2, "ask")
    assert files(tmp_path / "by-two") == files(tmp_path / "plain") == files(tmp_path / "ranks")


def test_a_passage_that_was_cut_otherwise_is_asked_about():
    class Rows:
        def of(self, items):
            row = {"id": "p-0", "context": "Ann was.", "question": "Who?", "written": "Ann"}
            return {item: ([row], []) for item in items}

    shard = RecordShard(0, (Document("Ann was. Bob, too.", "d"),))
    for text, left in (("Ann was.", 0), ("Ann was. Bob, too.", 1)):
        cut = [[Passage("p", text)]]
        (given,) = EarlierQuestions("old", Rows()).filled(lambda _, cut=cut: (cut, []), shard).records
        assert (len(given.earlier), given.left) == (1 - left, left)


def test_what_cannot_be_used_again_is_refused_in_a_line(asking, tmp_path):
    asking("old", OLD)
    old = str(tmp_path / "old")

    def refusal(match, **more):
        with pytest.raises(FolderError, match=match) as refused:
            asking("out", NEW, **{"reuse": old, **more})
        assert "\n" not in str(refused.value)
        assert not (tmp_path / "out").exists()

    refusal(
        "--reuse .*old: its questions were made with other settings or models: questions: 2 there, 3 here",
        questions=3,
    )
    refusal(
        "its questions were made with other settings or models: max_length: 24 there, 30 here", max_length=30
    )
    refusal("seed: 1 there, 2 here", seed=2)
    refusal("the model is another", kind="told")
    other = tmp_path / "other"
    other.mkdir()
    refusal("is not a dataset folder", reuse=str(other))
    with pytest.raises(FolderError, match="--out .* is what --reuse reads"):
        asking("old", NEW, reuse=old, fresh=True)

    (tmp_path / "old/data/train-00000.parquet").write_bytes(b"PAR1")
    refusal("--reuse .*old has changed since it was written: data/train-00000.parquet")
    manifest = tmp_path / "old/manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete": true', '"complete": false'))
    refusal("is unfinished")


def test_a_finished_folder_does_not_need_the_one_that_it_reused(asking, tmp_path):
    asking("old", OLD)
    asking("with", NEW, reuse=str(tmp_path / "old"))
    (tmp_path / "old").rename(tmp_path / "moved")
    heard = Heard()
    asking("with", NEW, heard, reuse=str(tmp_path / "old"))
    assert any("finished already" in line for line in heard.lines)
    with pytest.raises(FolderError, match="does not exist"):
        asking("more", NEW, reuse=str(tmp_path / "old"))


@pytest.mark.parametrize("kind", ["cloze", "drawn"])
def test_columns_that_are_kept_are_those_of_the_records_now(kind, asking, asked_about, tmp_path):
    def records(name, texts, column):
        rows = [{"text": text, column: f"{column} {number}"} for number, text in enumerate(texts)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {"inputs": [str(tmp_path / name)], "keep_column": [column]}

    asking("old", OLD, kind=kind, **records("old.jsonl", OLD, "date"))
    new = records("new.jsonl", NEW, "url")
    asking("plain", NEW, kind=kind, **new)
    asked_about.clear()
    asking("again", NEW, kind=kind, reuse=str(tmp_path / "old"), **new)
    assert {text for _, text in asked_about} & set(NEW) == {document(3), document(4)}
    assert files(tmp_path / "again") == files(tmp_path / "plain")


@pytest.mark.parametrize("kind", ["cloze", "drawn"])
def test_a_plan_counts_what_is_left(kind, asking, asker, asked_about, tmp_path):
    asking("old", OLD, kind=kind)
    plain = asking("plain", NEW, kind=kind)
    given = AskSettings(
        **{"inputs": [str(tmp_path / f"{len(NEW)}.txt")], "questions": 2, "device": "cpu"},
        **{"max_length": 24 if kind == "cloze" else 40},
        **KINDS[kind] | ({"model": asker} if kind == "drawn" else {}),
    )
    asked_about.clear()
    some = plan_ask(given.model_copy(update={"reuse": str(tmp_path / "old")}), {})
    new = set(asked_about)
    asked_about.clear()
    plan_ask(given, {})
    every = set(asked_about)
    assert {text for _, text in new} & set(NEW) == {document(3), document(4)}
    assert new < every
    asked_about.clear()
    none = plan_ask(given.model_copy(update={"reuse": str(tmp_path / "plain")}), {})
    assert not asked_about
    assert (none.tokens, none.rows["train"]) == (0, plain.rows)
    assert none.sample.num_rows == plain.rows
    if kind == "cloze":
        assert some.rows["train"] == plain.rows
    with pytest.raises(
        FolderError, match="its questions were made with other settings or models: questions: 2 there, 3 here"
    ):
        plan_ask(given.model_copy(update={"reuse": str(tmp_path / "old"), "questions": 3}), {})
    # Where passages are drawn, all count as new.
    asked_about.clear()
    plan_ask(given.model_copy(update={"reuse": str(tmp_path / "plain"), "sample": 3}), {})
    assert asked_about
