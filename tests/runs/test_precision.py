"""What ``auto`` means as a number format: on this machine, and in a folder that was begun on another."""

import json

import pyarrow as pa
import pytest
import torch

from pairsmith.cli.steps import STEPS
from pairsmith.core import model_files as modelfiles
from pairsmith.core.model_files import multiplies_fast, pick_dtype
from pairsmith.core.progress import Progress, Silent
from pairsmith.runs import FolderWriter, Run, begun, resolve_dtype
from pairsmith.runs.identity import Identity
from pairsmith.steps.evaluate.settings import EvaluateStsSettings
from pairsmith.steps.generate.settings import GenerateSettings, PostprocessSettings
from pairsmith.steps.mine.settings import MineSettings

MINE = MineSettings(inputs=["a.txt"], outputs=["b.txt"], encoder="some", device="cpu")


@pytest.fixture
def processor(monkeypatch):
    """Makes the processor have these instructions and no others."""

    def having(*instructions):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(instructions, True))

    return having


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ([], "float32"),
        (["avx2", "avx512_f", "amx_int8"], "float32"),
        (["avx512_fp16"], "float32"),
        (["avx512_bf16"], "bfloat16"),
        (["amx_bf16", "amx_int8"], "bfloat16"),
        (["neon", "bf16"], "bfloat16"),
    ],
)
def test_a_processor_computes_in_what_it_has_instructions_for(processor, instructions, expected):
    processor(*instructions)
    assert pick_dtype("auto", "cpu") == expected
    assert resolve_dtype(MINE).dtype == expected


@pytest.mark.parametrize(
    ("name", "instructions", "expected"),
    [
        ("Intel Xeon", ["avx512_bf16"], "float32"),
        ("Intel Xeon", ["avx512_bf16", "amx_bf16"], "bfloat16"),
        ("AMD EPYC", ["avx512_bf16"], "bfloat16"),
    ],
)
def test_intels_vector_instructions_for_bfloat16_are_slower_than_float32(
    monkeypatch, name, instructions, expected
):
    has = {"cpu_name": name, **dict.fromkeys(instructions, True)}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    assert pick_dtype("auto", "cpu") == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_what_is_said_is_taken_as_it_is(processor, dtype):
    processor()
    assert pick_dtype(dtype, "cpu") == dtype
    given = MINE.model_copy(update={"dtype": dtype})
    assert resolve_dtype(given) == given


@pytest.mark.parametrize(("known", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_gpus(monkeypatch, known, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: known)
    assert pick_dtype("auto", "cuda:1") == expected
    assert multiplies_fast("float16", "cuda")
    assert pick_dtype("auto", "mps") == "float32"


def test_a_gpu_that_only_the_workers_have(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    given = MINE.model_copy(update={"device": "cuda", "executor": "ray"})
    assert resolve_dtype(given).dtype == "bfloat16"


class SettlingError(Exception):
    """The step has asked which device there is."""


@pytest.mark.parametrize(
    "name", [name for name, step in STEPS.items() if "dtype" in step.settings.model_fields]
)
def test_every_step_with_a_model_settles_its_format_first(name, monkeypatch, tmp_path):
    def settling(device):
        raise SettlingError

    monkeypatch.setattr(begun, "pick_device", settling)
    given = STEPS[name].settings.model_construct(dtype="auto", device="cpu")
    with pytest.raises(SettlingError):
        STEPS[name].run(given, Run(tmp_path, Silent()))


def test_a_step_without_a_model_has_no_format():
    given = PostprocessSettings(data="somewhere")
    assert resolve_dtype(given) is given


def test_a_format_that_is_slow_here_is_told(processor, tmp_path, capsys):
    given = MINE.model_copy(update={"dtype": "bfloat16"})
    processor("avx512_bf16")
    resolve_dtype(given, Run(tmp_path, Progress()))
    assert capsys.readouterr().err == ""
    processor("avx2")
    resolve_dtype(given, Run(tmp_path, Progress()))
    assert "bfloat16 is slow on this machine" in capsys.readouterr().err


def test_what_a_server_computes_in_is_its_own_matter(processor, tmp_path, capsys):
    processor("avx2")
    given = GenerateSettings(task="t", model="http://127.0.0.1:1/v1", dtype="bfloat16")
    resolve_dtype(given, Run(tmp_path, Progress()))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("record", ["manifest.json", "training.json", "results.json"])
def test_what_was_begun_elsewhere_goes_on_in_its_format(processor, tmp_path, record):
    about = {"step": "mine", "settings": {"dtype": "bfloat16"}}
    (tmp_path / record).write_text(json.dumps({"about": about} if record == "results.json" else about))
    processor("avx2")
    assert resolve_dtype(MINE, Run(tmp_path, Silent())).dtype == "bfloat16"
    assert resolve_dtype(MINE, Run(tmp_path, Silent(), fresh=True)).dtype == "float32"
    assert resolve_dtype(MINE, Run(tmp_path / "none", Silent())).dtype == "float32"


def test_work_that_goes_on_in_a_slow_format_is_told(processor, tmp_path, capsys):
    (tmp_path / "training.json").write_text(json.dumps({"step": "x", "settings": {"dtype": "bfloat16"}}))
    processor("avx2")
    assert resolve_dtype(MINE, Run(tmp_path, Progress())).dtype == "bfloat16"
    assert "bfloat16 is slow on this machine" in capsys.readouterr().err


@pytest.mark.parametrize("manifest", [None, "{", '{"step": "postprocess", "settings": null}'])
def test_a_manifest_that_is_damaged_or_gone_is_no_hindrance(processor, tmp_path, manifest):
    """The journal, from which it is mended, says the same."""
    settings = {"dtype": "bfloat16"}
    FolderWriter.start(Run(tmp_path / "out", Silent()), Identity.of("postprocess", settings), pa.schema([("id", pa.string())]))  # fmt: skip
    path = tmp_path / "out" / "manifest.json"
    path.unlink() if manifest is None else path.write_text(manifest)
    processor("avx2")
    assert resolve_dtype(MINE, Run(tmp_path / "out", Silent())).dtype == "bfloat16"


@pytest.mark.parametrize("record", ["{", "[]", '{"step": "mine", "settings": null}', '{"step": "mine"}'])
def test_a_record_that_says_nothing_leaves_it_to_the_machine(processor, tmp_path, record):
    (tmp_path / "manifest.json").write_text(record)
    processor("avx2")
    assert resolve_dtype(MINE, Run(tmp_path, Silent())).dtype == "float32"


def test_a_finished_evaluation_is_not_done_again_on_another_machine(processor, monkeypatch, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(
        "score\tsentence1\tsentence2\n0.2\tA cat sleeps.\tRain falls.\n0.9\tA dog runs.\tA dog is running.\n0.5\ta\tb\n"
    )
    given = EvaluateStsSettings(model="pairsmith:tiny", data=str(pairs), dtype="auto", bootstrap=0)
    step, run = STEPS["evaluate-sts"], Run(tmp_path / "out", Silent())
    processor("avx512_bf16")
    step.run(given, run)
    results = (tmp_path / "out" / "results.json").read_text()
    assert json.loads(results)["about"]["settings"]["dtype"] == "bfloat16"
    processor("avx2")
    step.run(given, run)
    assert (tmp_path / "out" / "results.json").read_text() == results


def test_products_in_torch_agree_with_what_is_taken_for_fast():
    """Where torch has products of two-byte numbers of its own on x86, it has said so in its own way."""
    known = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert known or not modelfiles.multiplies_fast("bfloat16", "cpu")
