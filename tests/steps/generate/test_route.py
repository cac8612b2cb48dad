import io
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from torch import OutOfMemoryError

from pairsmith.core.errors import FolderError, InputError, ModelError, SettingsError, StorageError, TaskError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.tasks import load_task
from pairsmith.data.tasks.loading import read_task
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.generate import plan, route
from pairsmith.steps.generate.checks import remarks
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.generate.shards import shards_of

pytestmark = pytest.mark.slow

INPUT_AGAIN = "repeats an earlier input"
TASK = """
name: toy
kind: pair
labels:
  1: {instruction: 'Same. 1: "<X1>" 2: "', counter_labels: []}
  0: {instruction: 'Other. 1: "<X1>" 2: "', counter_labels: higher}
decoding: {max_tokens: 20, tries: 2}
"""


@pytest.fixture
def world(tmp_path, tiny_gpt2):
    (tmp_path / "task.yaml").write_text(TASK)
    (tmp_path / "in.txt").write_text("".join(f"text number {i}\n" for i in range(12)))

    def settings(**changes):
        given = {
            "task": str(tmp_path / "task.yaml"),
            "model": str(tiny_gpt2),
            "inputs": str(tmp_path / "in.txt"),
        }
        return GenerateSettings(**{**given, "shard_size": 5, **changes})

    return tmp_path, settings


def files(folder):
    return {
        path.name: path.read_bytes() for part in ("data", "rejects") for path in (folder / part).iterdir()
    }


def test_a_folder_with_shards_rejects_and_card(world):
    tmp, settings = world
    out = generate(settings(), Run(tmp / "out", Silent()))
    assert [entry.shard for entry in out.manifest.shards] == [0, 1, 2]
    assert out.table().column_names == ["id", "sentence1", "sentence2", "score"]
    count = 12 * 2 * 2
    assert out.rows <= count
    assert out.rows + out.manifest.counts.rejects >= count
    card = (tmp / "out/README.md").read_text()
    assert "Same. 1" in card
    assert "wrote the second text of each pair, following" in card
    assert "A row's score is the one that it was written for" in card
    assert "The rights in the inputs, and the terms of the language model, apply" in card
    assert list(out.manifest.inputs) == ["inputs 1"]
    opened = load_dataset(str(tmp / "out"), cache_dir=str(tmp / "cache"))
    assert opened["train"].num_rows == out.rows


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sts", "A row's score is the one"),
        ("nli", "A row's label is the one"),
        ("movie-reviews", "wrote them,"),
    ],
)
def test_the_card_says_what_the_model_wrote(name, said):
    task = load_task(name)
    card = route._card(task, GenerateSettings(task=name), 3)
    assert said in card.description
    assert ("second text of each pair" in card.description) == (task.kind == "pair")
    assert ("rights in the inputs" in card.licence) == (task.kind == "pair")


def test_the_card_of_reranked_texts_does_not_say_that_tokens_were_steered():
    task, server = load_task("sts"), "http://127.0.0.1:9/v1#m"

    def said(steering):
        given = GenerateSettings(model=server, steering=steering)
        return route._card(task, given, 3).description

    steered, reranked = (
        "Self-debiasing kept it from writing",
        "A text was kept if the model finds it less likely",
    )
    assert steered in said("certified")
    assert reranked not in said("certified")
    assert reranked in said("reranked")
    assert steered not in said("reranked")


def test_a_description_without_a_full_stop_is_a_sentence_of_the_card_all_the_same():
    task = load_task("sts").model_copy(update={"description": "Pairs of questions"})
    card = route._card(task, GenerateSettings(task="sts"), 3)
    assert card.description.startswith("Pairs of questions. The language model")


def test_batch_size_does_not_change_a_byte_and_a_new_seed_does(world):
    tmp, settings = world
    for name, changes in {"a": {}, "b": {"rows": 3}, "c": {"seed": 2}}.items():
        generate(settings(**changes), Run(tmp / name, Silent()))
    assert files(tmp / "a") == files(tmp / "b")
    assert files(tmp / "a") != files(tmp / "c")


@pytest.mark.long
def test_two_hash_seeds_give_the_same_bytes(world):
    tmp, settings = world
    given = settings(limit=4).model_dump_json()
    script = (
        "import sys, pathlib; from pairsmith.steps.generate.route import generate;"
        "from pairsmith.steps.generate.postprocess import postprocess;"
        "from pairsmith.steps.generate.settings import GenerateSettings, PostprocessSettings;"
        "from pairsmith.core.progress import Silent; from pairsmith.runs import DatasetFolder, Run;"
        "out = pathlib.Path(sys.argv[1]);"
        "generate(GenerateSettings.model_validate_json(sys.argv[2]), Run(out / 'g', Silent()));"
        "postprocess(PostprocessSettings(data=str(out / 'g')), Run(out / 'p', Silent()))"
    )
    for seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-c", script, str(tmp / seed), given], check=True, env=environment)
    assert files(tmp / "0/g") == files(tmp / "4242/g")
    assert files(tmp / "0/p") == files(tmp / "4242/p")


def test_an_interrupted_run_continues_to_the_same_bytes(world, monkeypatch):
    tmp, settings = world
    generate(settings(), Run(tmp / "whole", Silent()))
    from pairsmith.steps.generate import worker

    real, calls = worker.write, []

    def failing(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise StorageError("no space left")
        return real(*arguments, **options)

    monkeypatch.setattr(worker, "write", failing)
    with pytest.raises(StorageError):
        generate(settings(), Run(tmp / "cut", Silent()))
    kept = pq.read_table(tmp / "cut/data/train-00000.parquet").num_rows
    assert kept > 0
    generate(settings(), Run(tmp / "cut", Silent()))
    assert len(calls) == 4, "the finished shard is not made again"
    assert files(tmp / "cut") == files(tmp / "whole")


def test_a_finished_run_is_not_repeated_and_other_settings_are_refused(world):
    tmp, settings = world
    generate(settings(limit=6), Run(tmp / "out", Silent()))
    stream = io.StringIO()
    assert generate(settings(limit=6), Run(tmp / "out", Progress(stream))).rows
    assert "finished already" in stream.getvalue()
    with pytest.raises(FolderError, match="decay: 100.0 there, 0.0 here"):
        generate(settings(limit=6, decay=0.0), Run(tmp / "out", Silent()))


def test_duplicate_inputs_are_counted_rejects(world):
    tmp, settings = world
    (tmp / "in.txt").write_text("same text\nother text\nsame text\n")
    out = generate(settings(), Run(tmp / "out", Silent()))
    duplicates = [r for r in out.rejects().to_pylist() if r["reason"] == INPUT_AGAIN]
    assert [json.loads(r["row"])["where"] for r in duplicates] == ["in.txt:3"]
    assert set(out.table()["sentence1"].to_pylist()) <= {"same text", "other text"}


def test_several_sources_are_read_one_after_the_other(world):
    tmp, settings = world
    (tmp / "more.txt").write_text("text number 3\nanother text\n")
    out = generate(
        settings(inputs=[str(tmp / "in.txt"), str(tmp / "more.txt")], limit=14), Run(tmp / "out", Silent())
    )
    rejected = [
        json.loads(r["row"]).get("where") for r in out.rejects().to_pylist() if r["reason"] == INPUT_AGAIN
    ]
    assert rejected == ["more.txt:1"]
    assert set(out.table()["sentence1"].to_pylist()) <= {f"text number {i}" for i in range(12)} | {
        "another text"
    }


def test_two_columns_are_first_texts_in_turn(world):
    tmp, settings = world
    (tmp / "in.tsv").write_text("first\tsecond\nyou\tthey\n\twe\nthey\tit\nI\t\n")
    given = settings(inputs=str(tmp / "in.tsv"), column=["first", "second"], limit=5)
    shards = shards_of(given, read_task(tmp / "task.yaml").decoding, 5)
    assert [list(shard.items) for shard in shards] == [["you", "they", "we", "it"]]
    assert [json.loads(duplicate.row) for duplicate in shards[0].duplicates] == [
        {"sentence1": "they", "where": "in.tsv:4"}
    ]
    out = generate(given, Run(tmp / "out", Silent()))
    (tmp / "in.txt").write_text("you\nthey\nwe\nthey\nit\n")
    plain = generate(settings(), Run(tmp / "plain", Silent()))
    assert out.table() == plain.table()
    assert settings(column="first").column == ["first"]


def test_an_input_longer_than_the_context_is_a_counted_reject(world):
    tmp, settings = world
    (tmp / "in.txt").write_text("short one\n" + "long " * 500 + "\n")
    out = generate(settings(), Run(tmp / "out", Silent()))
    reasons = out.manifest.counts.rejects_by_reason
    assert reasons["too long: a prompt and 20 new tokens exceed the model's 128 tokens"] == 2
    assert "long " not in "".join(out.table()["sentence1"].to_pylist())


def test_rejects_of_an_input_of_megabytes_hold_its_beginning(world):
    tmp, settings = world
    (tmp / "in.txt").write_text("short one\n" + "long " * 200_000 + "\n")
    out = generate(settings(), Run(tmp / "out", Silent()))
    rows = [json.loads(row["row"]) for row in out.rejects().to_pylist() if row["filter"] == "too long"]
    assert [row["sentence1"] for row in rows] == ["long " * 2_000 + " [… 989,999 more characters]"] * 2


def test_x1_from_scratch_feeds_pairs(tmp_path, tiny_gpt2):
    first = GenerateSettings(task="sts-x1", model=str(tiny_gpt2), per_input=6, max_tokens=20)
    texts = generate(first, Run(tmp_path / "x1", Silent()))
    assert texts.table().column_names == ["id", "text", "label"]
    assert 0 < texts.rows <= 18
    second = GenerateSettings(task="sts", model=str(tiny_gpt2), inputs=str(tmp_path / "x1"), max_tokens=20)
    pairs = generate(second, Run(tmp_path / "x2", Silent()))
    assert set(pairs.table()["sentence1"].to_pylist()) <= set(texts.table()["text"].to_pylist())


def test_rows_of_some_labels_alone_are_those_of_a_whole_run(world):
    tmp, settings = world
    whole = generate(settings(), Run(tmp / "whole", Silent()))
    some = generate(settings(labels="0"), Run(tmp / "some", Silent()))
    wanted = [row for row in whole.table().to_pylist() if row["score"] == 0]
    assert some.table().to_pylist() == wanted != []
    assert whole.rows > some.rows
    with pytest.raises(FolderError, match="task"):
        generate(settings(labels="1"), Run(tmp / "some", Silent()))


def test_preview_shows_examples_and_writes_nothing(world, capsys):
    tmp, settings = world
    assert generate(settings(preview=2), Run(tmp / "out", Progress(io.StringIO()))) is None
    text = capsys.readouterr().out
    assert text.count("first text:") == 2
    assert text.count("label 0 (counter-labels: 1)") == 2
    assert "plain  steered   most lowered" in text
    assert "self-debiasing with decay" in text
    assert not (tmp / "out").exists()


def test_preview_and_card_name_the_rule_that_steers(world, capsys):
    tmp, settings = world
    other = {"rule": "guidance", "decay": 0.0}
    assert generate(settings(preview=1, **other), Run(tmp / "out", Progress(io.StringIO()))) is None
    text = capsys.readouterr().out
    assert "guidance with scale 1.5; nothing is written" in text
    assert "steered: after guidance" in text
    assert "plain  steered   most lowered" in text  # decay belongs to self-debiasing alone
    generate(settings(limit=1, **other), Run(tmp / "guided", Silent()))
    assert "Guidance kept it from writing texts" in (tmp / "guided" / "README.md").read_text()


def test_progress_says_how_much_and_how_fast(world):
    tmp, settings = world
    stream = io.StringIO()
    generate(settings(limit=3), Run(tmp / "out", Progress(stream, every=0)))
    lines = stream.getvalue().splitlines()
    assert any("6/6 prompts · 100 %" in line for line in lines)
    wrote = f"wrote {DatasetFolder.open(tmp / 'out').rows} rows to {tmp / 'out'} ("
    assert any(line.startswith(wrote) for line in lines)
    assert lines[-1].startswith("  label 0  ")


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"inputs": []}, SettingsError, "give --inputs FILE"),
        ({"task": "movie-reviews"}, SettingsError, "takes no --inputs"),
        ({"task": "topic", "inputs": [], "limit": 3}, SettingsError, "takes no --limit; --per-input says"),
        ({"rows": 1}, SettingsError, "--rows 1 is too few for the task toy; give --rows 2 or more"),
        ({"per_input": 9}, SettingsError, "2 tries cannot give 9 texts per input; give --tries 12"),
        ({"task": "stss"}, TaskError, "did you mean 'sts'"),
        ({"inputs": "gone.txt"}, InputError, "gone.txt"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_made(world, changes, error, text):
    tmp, settings = world
    with pytest.raises(error, match=text):
        generate(settings(**changes), Run(tmp / "out", Silent()))
    assert not (tmp / "out").exists()


def test_a_folder_that_holds_something_else_is_left_alone(world):
    tmp, settings = world
    (tmp / "out").mkdir()
    (tmp / "out/thesis.txt").write_text("mine")
    with pytest.raises(FolderError, match=r"holds something else \(thesis.txt\)"):
        generate(settings(), Run(tmp / "out", Silent()))
    assert [path.name for path in (tmp / "out").iterdir()] == ["thesis.txt"]


def test_when_memory_runs_out_the_batch_is_halved_and_the_rows_stay_the_same(world, monkeypatch):
    tmp, settings = world
    generate(settings(rows=64), Run(tmp / "roomy", Silent()))
    from pairsmith.steps.generate import worker

    real, budgets = worker.write, []

    def cramped(*arguments, **options):
        budgets.append(arguments[5])
        if budgets[-1] > 20:
            raise OutOfMemoryError("CUDA out of memory")
        return real(*arguments, **options)

    monkeypatch.setattr(worker, "write", cramped)
    generate(settings(rows=64), Run(tmp / "cramped", Silent()))
    assert budgets == [64, 32, 16, 16, 16], "the smaller budget stays"
    assert files(tmp / "cramped") == files(tmp / "roomy")


def test_the_batch_that_is_halved_is_the_one_that_the_model_chose(world, monkeypatch):
    tmp, settings = world
    from pairsmith.models.language.transformers_backend import TransformersModel
    from pairsmith.steps.generate import worker

    real, budgets = worker.write, []

    def cramped(*arguments, **options):
        budgets.append(arguments[5])
        rows = real(*arguments, **options)
        if budgets[-1] is None:
            raise OutOfMemoryError("CUDA out of memory")
        return rows

    monkeypatch.setattr(TransformersModel, "rows_that_fit", lambda model, tokens: 1_000)
    monkeypatch.setattr(worker, "write", cramped)
    generate(settings(), Run(tmp / "out", Silent()))
    assert budgets == [None, 500, 500, 500]


def test_memory_for_not_even_one_group_says_what_to_do(world, monkeypatch):
    tmp, settings = world
    from pairsmith.steps.generate import worker

    def exhausted(*arguments, **options):
        raise RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."
        )

    monkeypatch.setattr(worker, "write", exhausted)
    with pytest.raises(ModelError, match="even 2 rows at once do not fit in memory"):
        generate(settings(), Run(tmp / "out", Silent()))


def test_another_runtime_error_is_not_taken_for_memory(world, monkeypatch):
    tmp, settings = world
    from pairsmith.steps.generate import worker

    def broken(*arguments, **options):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(worker, "write", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        generate(settings(), Run(tmp / "out", Silent()))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"limit": 7}, {"limit": 12}),
        ({"limit": 5}, {}),
        ({"per_input": 1}, {"per_input": 2}),
        pytest.param({"per_input": 1, "limit": 3}, {"per_input": 3, "tries": 4}, marks=pytest.mark.long),
        pytest.param({"tries": 2}, {"tries": 6}, marks=pytest.mark.long),
    ],
)
def test_more_of_the_same_keeps_finished_rows_and_gives_the_bytes_of_doing_all_at_once(world, first, then):
    tmp, settings = world
    before = generate(settings(**first), Run(tmp / "out", Silent())).table()["id"].to_pylist()
    after = generate(settings(**then), Run(tmp / "out", Silent()))
    assert set(before) <= set(after.table()["id"].to_pylist())
    generate(settings(**then), Run(tmp / "whole", Silent()))
    assert files(tmp / "out") == files(tmp / "whole")
    assert after.manifest.fingerprint == DatasetFolder.open(tmp / "whole").manifest.fingerprint


def test_only_what_is_missing_is_asked_of_the_model(world, monkeypatch):
    tmp, settings = world
    generate(settings(limit=7), Run(tmp / "out", Silent()))
    from pairsmith.steps.generate import worker

    real, calls = worker.write, []

    def counting(task, model, wanted, decoding, seed, rows, hooks):
        calls.append((len(wanted), sum(bool(request.texts or request.rejects) for request in wanted)))
        return real(task, model, wanted, decoding, seed, rows, hooks)

    monkeypatch.setattr(worker, "write", counting)
    generate(settings(), Run(tmp / "out", Silent()))
    assert calls == [(10, 4), (4, 0)], "of the second shard two of five inputs were there"


def test_more_lines_in_the_file_are_more_work_and_other_lines_are_refused(world):
    tmp, settings = world
    lines = (tmp / "in.txt").read_text().splitlines(keepends=True)
    (tmp / "in.txt").write_text("".join([*lines[:6], lines[0], *lines[6:8]]))
    generate(settings(), Run(tmp / "out", Silent()))
    (tmp / "in.txt").write_text("".join([*lines[:6], lines[0], *lines[6:]]))
    generate(settings(), Run(tmp / "out", Silent()))
    generate(settings(), Run(tmp / "whole", Silent()))
    assert files(tmp / "out") == files(tmp / "whole")
    (tmp / "in.txt").write_text("".join(lines[1:]))
    with pytest.raises(
        FolderError,
        match=r"on other inputs: input inputs 1 \(.*in.txt\) is another, or has changed: .* there, .* here",
    ):
        generate(settings(), Run(tmp / "out", Silent()))
    assert files(tmp / "out") == files(tmp / "whole"), "a refusal leaves everything as it was"


@pytest.mark.parametrize("less", [{"limit": 4}, {"per_input": 1}, {"tries": 1, "per_input": 1}])
def test_less_than_what_is_there_is_refused(world, less):
    tmp, settings = world
    generate(settings(), Run(tmp / "out", Silent()))
    before = files(tmp / "out")
    with pytest.raises(FolderError, match="with other settings"):
        generate(settings(**less), Run(tmp / "out", Silent()))
    assert files(tmp / "out") == before


@pytest.mark.long
def test_a_text_task_grows_too(tmp_path, tiny_gpt2):
    def settings(**changes):
        return GenerateSettings(
            task="movie-reviews", model=str(tiny_gpt2), max_tokens=12, shard_size=4, **changes
        )

    generate(settings(per_input=6), Run(tmp_path / "out", Silent()))
    generate(settings(per_input=10, tries=8), Run(tmp_path / "out", Silent()))
    generate(settings(per_input=10, tries=8), Run(tmp_path / "whole", Silent()))
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@pytest.mark.long
def test_two_workers_write_the_same_bytes(world):
    tmp, settings = world
    generate(settings(), Run(tmp / "one", Silent()))
    stream = io.StringIO()
    generate(settings(workers=2), Run(tmp / "two", Progress(stream)))
    assert files(tmp / "one") == files(tmp / "two")
    assert "generate: 24/24 prompts" in stream.getvalue()


@pytest.mark.long
def test_a_worker_without_a_model_says_what_one_process_would_say(world):
    tmp, settings = world
    (tmp / "model").mkdir()
    (tmp / "model/model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelError, match="model"):
        generate(settings(workers=2, model=str(tmp / "model")), Run(tmp / "out", Silent()))


def pair_task(tmp_path, *labels):
    lines = ["name: stars", "kind: pair", "labels:"]
    instruction = r'{instruction: "Same: \"<X1>\" and \""}'
    (tmp_path / "stars.yaml").write_text(
        "\n".join([*lines, *(f"  {label}: {instruction}" for label in labels)])
    )
    return load_task(str(tmp_path / "stars.yaml"))


def test_labels_that_no_encoder_learns_are_told_before_hours_of_generation(tmp_path):
    (far,) = remarks(pair_task(tmp_path, "5", "1"))
    assert far.startswith("the labels of stars range from 1 to 5; train-encoder fits cosines")
    (quoted,) = remarks(pair_task(tmp_path, '"1"', '"0"'))
    assert "are numbers in quotation marks" in quoted
    for labels in (("1", "0.5", "0"), ("same", "other"), ("-1", "1")):
        assert not list(remarks(pair_task(tmp_path, *labels)))


@pytest.mark.parametrize(
    ("columns", "texts", "count"), [([], ["a", "b"], 40), (["input", "output"], ["a", "c", "b", "d"], 80)]
)
def test_a_plan_reads_the_texts_that_an_earlier_step_will_make(world, columns, texts, count):
    tmp, settings = world
    mined = pa.table({"id": ["1", "2"], "input": ["a", "b"], "output": ["c", "d"]})
    sample = str(tmp / "mined.parquet")
    pq.write_table(mined, sample)
    before = {sample: Estimate(1.0, 1, 1, {"train": 40}, sample=mined)}
    given = settings(inputs=sample, column=columns)
    assert plan._inputs(given, given.resolved_task(), before) == (count, texts)


def test_every_setting_that_decides_rows_is_in_the_fingerprint():
    given = GenerateSettings(model="m", inputs=["texts.txt"])
    identified = route._fingerprint_settings(given.resolved_task(), given)
    by_content = {"task", "model", "inputs", "labels"}  # labels choose among those of the task
    of_servers = {"steering", "top_logprobs"}
    where = {"until", "preview", "device", "rows", "concurrency", "workers", "executor"}
    where |= {"ray_address", "rank", "world_size"}
    rest = GenerateSettings.model_fields.keys() - by_content - of_servers - where
    assert rest <= identified.keys(), rest - identified.keys()
