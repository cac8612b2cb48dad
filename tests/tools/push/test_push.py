"""What is sent to the Hub, what is not, and what is said when it cannot be."""

import hashlib
import json
import re
import shutil
import tempfile
from pathlib import Path

import datasets
import huggingface_hub
import pytest
import yaml
from sentence_transformers import SentenceTransformer
from tests.conftest import make_bert
from tests.runs.test_croissant import dataset_folder, opened, scored
from tests.tools.push.hub import TOKEN, logged_in
from transformers import AutoModel, AutoTokenizer
from typer.testing import CliRunner
from upath import UPath

from pairsmith.cli.app import make_app
from pairsmith.core.errors import FolderError, RemoteError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import SCORED_PAIR, Reject
from pairsmith.runs import Card, DatasetFolder, Run
from pairsmith.runs.manifest import FORMAT
from pairsmith.runs.status import status_lines
from pairsmith.tools.push.names import PathReplacer
from pairsmith.tools.push.route import push
from pairsmith.tools.settings import PushSettings

pytestmark = pytest.mark.slow


@pytest.fixture
def hub(monkeypatch):
    with logged_in(monkeypatch) as hub:
        yield hub


@pytest.fixture
def rows(tmp_path):
    """A dataset folder, with what has no business on the Hub lying in it too."""
    card = Card("Rows", f"Rows of {tmp_path / 'private' / 'in.txt'}.", citations=["One"])
    folder = dataset_folder(tmp_path / "rows", SCORED_PAIR, scored, [Reject("r", "f", "why", "{}")], card)
    manifest = folder.path / "manifest.json"
    record = json.loads(manifest.read_text())
    record["settings"] = {
        "data": ["/home/anna/My Data/secret plans.jsonl", "s3://firm/deep/in.jsonl"],
        "n": 3,
    }
    record["inputs"] = {"/home/anna/corpus.txt": "ab12"}
    manifest.write_text(json.dumps(record))
    for name in (".env", "notes.txt", "data/extra.parquet", "cache/token", ".pairsmith-lock"):
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).write_text("x")
    return folder.path


def model(folder):
    """A model folder as transformers saves it, with leavings of a training in it."""
    make_bert(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "_name_or_path": "/home/anna/models/base"}))
    (folder / "README.md").write_text(f"---\nlicense: mit\n---\n\nFrom {folder.parent / 'base'}.\n")
    (folder / "checkpoint-10").mkdir()
    shutil.copy(folder / "model.safetensors", folder / "checkpoint-10")
    for name in ("trainer_state.json", "optimizer.pt", "log.jsonl", ".env", "training_args.bin"):
        (folder / name).write_text("{}")
    return folder


def dry(data, out, **changes):
    push(PushSettings(data=str(data), repo="anna/x", dry_run=True, **changes), Run(out, Silent()))
    return {path.relative_to(out).as_posix(): path for path in out.rglob("*") if path.is_file()}


def sent(data, **changes):
    return push(PushSettings(data=str(data), repo="anna/x", **changes), Run(Path(), Silent(), kept=False))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:(rdflib|mlcroissant)")
def test_a_dry_run_holds_a_data_set_and_nothing_else(rows, tmp_path):
    files = dry(rows, tmp_path / "out")
    shards = {f"{split}-0000{n}.parquet" for split, n in (("train", 0), ("train", 1), ("validation", 0))}
    assert set(files) == {
        "README.md", "manifest.json", "croissant.json", "rejects/part-00000.parquet", "rejects/part-00001.parquet",
        *(f"data/{name}" for name in shards),
    }  # fmt: skip
    for name in files:
        if name.endswith(".parquet"):
            assert files[name].read_bytes() == (rows / name).read_bytes()
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"].to_list() == DatasetFolder.open(rows).table().to_pylist()
    assert DatasetFolder.open(tmp_path / "out").rows == 6
    described = opened(files["croissant.json"])
    assert len(list(described.records("data"))) == 6
    assert described.metadata.url == "https://huggingface.co/datasets/anna/x"


def test_what_is_sent_names_files_and_not_where_they_lie(rows, tmp_path):
    files = dry(rows, tmp_path / "out")
    texts = {name: files[name].read_text() for name in ("README.md", "manifest.json", "croissant.json")}
    for text in texts.values():
        assert str(tmp_path) not in text
        assert "/home/anna" not in text
        assert "s3://firm" not in text
    manifest = json.loads(texts["manifest.json"])
    assert manifest["settings"] == {"data": ["secret plans.jsonl", "in.jsonl"], "n": 3}
    assert manifest["inputs"] == {"corpus.txt": "ab12"}
    assert "Rows of in.txt." in texts["README.md"]
    assert str(tmp_path) in (rows / "README.md").read_text()  # the folder itself is as it was


def test_texts_that_only_look_like_places_stay(tmp_path):
    record = {"task": "/s is sarcasm", "url": "https://host/a/b", "label": "and/or", "to": "~/a/b.txt"}
    assert PathReplacer(tmp_path, record).values(record) == {**record, "to": "b.txt"}


def test_addresses_stay_whatever_the_folders_are_called():
    names = PathReplacer(Path("/datasets/pairs"), {"inputs": "/datasets/raw/news.txt"})
    text = "From https://huggingface.co/datasets/rajpurkar/squad and /datasets/raw/news.txt (/datasets/x)."
    assert names.text(text) == "From https://huggingface.co/datasets/rajpurkar/squad and news.txt (x)."
    assert names.text("http://host:8000/v1#/datasets/models/llama") == "http://host:8000/v1#llama"
    assert names.text("https://x.org/a,/datasets/raw/b.txt") == "https://x.org/a,b.txt"


def test_a_dry_run_does_not_write_over_another_model(tmp_path):
    one = model(tmp_path / "one")
    there = dry(one, tmp_path / "other")
    there["config.json"].write_text("{}")
    there["README.md"].unlink()
    with pytest.raises(FolderError, match=r"holds a different config.json; .*or --fresh to overwrite it"):
        dry(one, tmp_path / "other")
    assert there["config.json"].read_text() == "{}"
    assert not there["README.md"].exists()  # nothing is written before all has been compared
    settings = PushSettings(data=str(one), repo="anna/x", dry_run=True)
    push(settings, Run(tmp_path / "other", Silent(), fresh=True))
    assert len(there["config.json"].read_text()) > 10


def test_a_dry_run_says_the_size_in_a_fitting_unit(rows, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(Silent, "say", lambda _, text: said.append(text))
    dry(rows, tmp_path / "out")
    assert re.search(r"what would be uploaded: \d+ files of a dataset, \d+\.\d kB$", said[-1])


def test_a_card_in_another_encoding_is_told(rows, tmp_path):
    card = rows / "README.md"
    card.write_bytes(card.read_bytes() + "é".encode("latin-1"))
    with pytest.raises(FolderError, match=r"README.md is not UTF-8 text"):
        dry(rows, tmp_path / "out")


def test_a_dry_run_holds_a_model_and_nothing_else(tmp_path):
    folder = model(tmp_path / "model")
    files = dry(folder, tmp_path / "out")
    assert set(files) == {
        "README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert json.loads(files["config.json"].read_text())["_name_or_path"] == "base"
    assert files["README.md"].read_text().endswith("From base.\n")
    AutoModel.from_pretrained(tmp_path / "out")
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("a man")["input_ids"]


def test_a_sentence_encoder_is_sent_with_its_modules(tmp_path, tiny_bert):
    SentenceTransformer(str(tiny_bert), device="cpu").save(str(tmp_path / "st"))
    files = dry(tmp_path / "st", tmp_path / "out")
    assert {"modules.json", "1_Pooling/config.json", "model.safetensors"} <= set(files)
    original, theirs = (SentenceTransformer(str(tmp_path / name), device="cpu") for name in ("st", "out"))
    assert (original.encode(["a dog"]) == theirs.encode(["a dog"])).all()


def test_a_trained_model_is_what_its_record_lists_and_has_to_be_whole(tmp_path):
    folder = model(tmp_path / "model")
    files = {}
    for name in ("config.json", "model.safetensors", "tokenizer.json", "README.md"):
        files[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    record = {
        "format": FORMAT, "step": "train-reader", "settings": {}, "inputs": {}, "models": {}, "fingerprint": "f",
        "pairsmith": "0", "complete": True, "files": files,
    }  # fmt: skip
    (folder / "training.json").write_text(json.dumps(record))
    (folder / "README.md").write_text("changed by hand")
    assert set(dry(folder, tmp_path / "out")) == set(files)
    (folder / "config.json").write_text("{}")
    with pytest.raises(
        FolderError, match=r"has changed since it was written: config.json \(changed\).*train-reader"
    ):
        dry(folder, tmp_path / "again")
    (folder / "training.json").write_text(json.dumps({**record, "complete": False}))
    with pytest.raises(FolderError, match="is unfinished"):
        dry(folder, tmp_path / "again")


def test_a_whole_push(rows, tmp_path, hub):
    hub.files = {".gitattributes": b"", "data/train-00007.parquet": b"old", "extra.md": b"theirs"}
    assert sent(rows).endswith("/commit/1")
    assert len(hub.commits) == 1
    assert hub.made == {"name": "x", "organization": "anna", "type": "dataset"}
    expected = {name: path.read_bytes() for name, path in dry(rows, tmp_path / "out").items()}
    described = json.loads(expected.pop("croissant.json"))
    assert json.loads(hub.files.pop("croissant.json"))["distribution"] == described["distribution"]
    assert hub.files == {**expected, ".gitattributes": b"", "extra.md": b"theirs"}


def test_a_model_goes_to_a_branch_and_is_private(tmp_path, hub):
    hub.private = True
    folder = model(tmp_path / "model")
    sent(folder, private=True, revision="v2")
    assert hub.made["visibility"] == "private"
    assert "POST /api/models/anna/x/branch/v2" in hub.seen
    assert hub.commits == ["/api/models/anna/x/commit/v2"]
    assert hub.files["model.safetensors"] == (folder / "model.safetensors").read_bytes()


def test_a_public_repository_is_not_written_to_as_a_private_one(rows, hub):
    with pytest.raises(SettingsError, match="anna/x exists and is public"):
        sent(rows, private=True)
    assert not hub.commits


def test_with_a_folder_it_says_there_what_was_sent(rows, tmp_path, hub):
    out = tmp_path / "sent"
    for _ in range(2):
        push(PushSettings(data=str(rows), repo="anna/x"), Run(out, Silent()))
    record = json.loads((out / "push.json").read_text())
    assert record["commit"].endswith("/commit/1")
    assert record["inputs"].keys() == hub.files.keys()
    assert status_lines(out) == [f"{out}: push, finished"]
    assert len(hub.commits) == 2


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (401, SettingsError, "does not accept the token; log in with `hf auth login`"),
        (403, SettingsError, r"does not let you write to anna/x \(no \*\*\*"),
        (400, SettingsError, "status 400"),
    ],
)
def test_refusals_are_told_in_a_line_without_the_token(rows, hub, status, kind, message):
    hub.refuse, hub.says = status, f"no {TOKEN}"
    with pytest.raises(kind, match=message) as caught:
        sent(rows)
    assert TOKEN not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_connection(rows, hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RemoteError, match=r"127.0.0.1:9\) cannot be reached: .*check the connection"):
        sent(rows)


def test_offline(rows, hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SettingsError, match="HF_HUB_OFFLINE is set"):
        sent(rows)


def test_without_a_token(rows, hub, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(SettingsError, match="there is no token for the Hub; log in with"):
        sent(rows)
    assert not hub.seen


def test_damaged_and_unfinished_data_are_not_sent(rows, tmp_path):
    (rows / "data/train-00001.parquet").write_bytes(b"x")
    (rows / "rejects/part-00000.parquet").unlink()
    with pytest.raises(FolderError) as caught:
        dry(rows, tmp_path / "out")
    assert "rejects/part-00000.parquet (missing)" in str(caught.value)
    assert "data/train-00001.parquet (changed)" in str(caught.value)
    manifest = json.loads((rows / "manifest.json").read_text())
    (rows / "manifest.json").write_text(json.dumps({**manifest, "complete": False}))
    with pytest.raises(FolderError, match="is unfinished"):
        dry(rows, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({}, "has neither the manifest.json of a data set nor the config.json of a model"),
        (
            {"run.json": "{}", "pairs/manifest.json": "{}"},
            "is a recipe's run; give the folder of a step in it: pairs",
        ),
        ({"config.json": "{}"}, "holds no weights"),
    ],
)
def test_folders_that_cannot_be_sent(tmp_path, files, fault):
    (tmp_path / "in").mkdir()
    for name, text in files.items():
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    with pytest.raises(FolderError, match=fault):
        dry(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("name", ["anna/x.git", "anna/x--y", "anna/" + "x" * 97])
def test_names_that_the_hub_does_not_allow_are_told_by_a_dry_run_too(rows, tmp_path, name):
    with pytest.raises(SettingsError, match=f"--repo {name}: "):
        push(PushSettings(data=str(rows), repo=name, dry_run=True), Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


BRANCHES = [
    "",
    "a b",
    "a..b",
    "a//b",
    "/a",
    "-a",
    "a/.b",
    "a.lock",
    "a.",
    "a/",
    "@",
    "HEAD",
    "a@{1}",
    "a~1",
    "a\\b",
]


@pytest.mark.parametrize("name", [*BRANCHES, "5" * 40])
def test_names_that_git_allows_no_branch_are_told_by_a_dry_run_too(rows, tmp_path, name):
    with pytest.raises(ValueError, match="give (the|a) name of"):
        dry(rows, tmp_path / "out", revision=name)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["main", "v1.0", "refs/pr/1", "a-b_c/d@2", "a.locked", "großes"])
def test_other_branches_are_allowed(rows, tmp_path, name):
    assert dry(rows, tmp_path / "out", revision=name)


def test_files_and_splits_are_not_sent_alone(rows, tmp_path):
    for source, fault in (
        (rows / "README.md", "README.md: is a file; give a dataset folder or a model folder"),
        (f"{rows}:train", f"there is no such folder; give {rows}, as whole folders are uploaded"),
    ):
        with pytest.raises(FolderError, match=fault):
            dry(source, tmp_path / "out")


def test_a_folder_in_a_store_is_sent_too(rows, tmp_path, monkeypatch):
    # The card has a path that is hidden only below the temporary folder, where pytest need not put its own.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = UPath("memory://push-test/rows")
    for path in (path for path in rows.rglob("*") if path.is_file()):
        (store / path.relative_to(rows).as_posix()).write_bytes(path.read_bytes())
    there = {name: path.read_bytes() for name, path in dry(store, tmp_path / "store").items()}
    assert there == {name: path.read_bytes() for name, path in dry(rows, tmp_path / "here").items()}


def test_a_dry_run_writes_over_its_own_and_over_nothing_else(rows, tmp_path):
    first = {name: path.read_bytes() for name, path in dry(rows, tmp_path / "out").items()}
    assert {name: path.read_bytes() for name, path in dry(rows, tmp_path / "out").items()} == first
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(FolderError, match="holds files that would not be uploaded"):
        dry(rows, tmp_path / "out")
    with pytest.raises(FolderError, match="is what --data reads"):
        dry(rows, rows)


def test_the_command(rows, tmp_path, hub):
    def pairsmith(*arguments):
        return CliRunner().invoke(make_app(), ["push", "--data", str(rows), *arguments])

    wrong = pairsmith("--repo", "anna")
    assert (wrong.exit_code, wrong.stderr) == (
        2,
        "pairsmith: error: --repo: should be OWNER/NAME on the Hub, not 'anna'\n",
    )
    wrong = pairsmith("--repo", "anna/x", "--dry-run", "--revision", "my branch")
    assert (wrong.exit_code, wrong.stderr) == (
        2,
        "pairsmith: error: --revision: git allows no branch 'my branch'; give a name of letters, digits and "
        "hyphens, such as v2\n",
    )
    missing = pairsmith("--repo", "anna/x", "--dry-run")
    assert missing.exit_code == 2
    assert "--out is missing" in missing.stderr
    done = pairsmith("--repo", "anna/x", "--quiet")
    assert (done.exit_code, done.stdout) == (0, f"{hub.address}/anna/x/commit/1\n")
    hub.refuse = 401
    refused = pairsmith("--repo", "anna/x")
    assert refused.exit_code == 2
    assert "Traceback" not in refused.stderr
    card = yaml.safe_load(hub.files["README.md"].decode().split("---\n")[1])
    assert card["pretty_name"] == "Rows"
