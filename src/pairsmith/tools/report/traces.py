"""The report's section on the effect of self-debiasing, token by token, for some first texts."""

from collections.abc import Iterator

from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.model_names import model_revision
from pairsmith.core.paths import MANIFEST, Place, size_of
from pairsmith.data.tasks import Decoding, TaskSpec
from pairsmith.methods.dino.traces import Trace, traces
from pairsmith.runs import DatasetFolder
from pairsmith.tools.report.charts import lines
from pairsmith.tools.report.parts import Block, Chart, Note, PageSection, Table, shown_text
from pairsmith.tools.settings import ReportSettings


def check_traces(source: Place, settings: ReportSettings) -> None:
    """Check that the rows in ``source`` can be traced with the model of ``settings``."""
    if size_of(source / MANIFEST) is None:
        raise SettingsError(f"--traces needs a folder that generate wrote as --data; {source} is not one")
    folder = DatasetFolder.open(source)
    if settings.model is None:
        raise SettingsError("--traces needs --model; give the language model that wrote the rows")
    if folder.manifest.step != "generate":
        raise SettingsError(
            "--traces needs a folder that generate wrote as --data; "
            f"{folder.path} was written by {folder.manifest.step}"
        )
    if folder.manifest.models.get("model") != model_revision(settings.model):
        raise ModelError(
            f"--model {settings.model}: the rows in {folder.path} were written by another model, or by other "
            "weights of it; give the model that wrote them"
        )


def traces_section(folder: DatasetFolder, settings: ReportSettings) -> PageSection:
    """The first attempt at each label for ``settings.traces`` first texts; call ``check_traces`` before."""
    from pairsmith.models.language.loading import load_model  # imported here, as it takes seconds

    assert settings.model is not None  # ``check_traces`` refuses None
    generation = folder.manifest.settings
    task = TaskSpec.model_validate(generation["task"])
    decoding = Decoding(**{name: generation[name] for name in Decoding.model_fields if name in generation})
    model = load_model(settings.model, device=settings.device, dtype=generation["dtype"])
    items = range(settings.traces) if task.kind == "text" else _first_texts(folder, settings.traces)
    blocks: list[Block] = [
        Note(
            "The first attempt for each label. “plain” is a token's probability under the label's own "
            f"instruction, “steered” its probability after {decoding.steering}, before top-k and top-p. "
            "“most lowered” is the token whose probability fell most at that position."
        )
    ]
    for trace in traces(task, model, items, decoding, generation["seed"]):
        blocks += _blocks(trace)
    return PageSection("Token by token", blocks)


def _first_texts(folder: DatasetFolder, count: int) -> list[str]:
    shards = (shard for split in folder.splits for shard in folder.shards(split))
    texts: dict[str, None] = {}
    for text in (text for shard in shards for text in shard.column("sentence1").to_pylist()):
        texts[text] = None
        if len(texts) == count:
            break
    return list(texts)


def _blocks(trace: Trace) -> Iterator[Block]:
    begin = f"{shown_text(trace.input, 200)} → " if trace.input else ""
    against = (
        f" (against {', '.join(shown_text(counter, 40) for counter in trace.counters)})"
        if trace.counters
        else ""
    )
    end = f" — rejected: {shown_text(trace.rejected)}" if trace.rejected else ""
    yield Note(f"{begin}{shown_text(trace.label, 40)}{against}: {shown_text(trace.text)}{end}")
    if not trace.counters or not trace.tokens:
        return
    series = {
        name: [(float(place), getattr(step, name)) for place, step in enumerate(trace.tokens, start=1)]
        for name in ("plain", "steered")
    }
    yield Chart(lines(series, "token"), "Probability of each token that was drawn, by its position.")
    rows = []
    for step in trace.tokens:
        token, before, after = step.lowered
        fall = (_token(token), f"{before:.2f}", f"{after:.2f}") if step.is_notable else ("", "", "")
        rows.append((_token(step.token), fall[0], f"{step.plain:.2f}", f"{step.steered:.2f}", *fall[1:]))
    yield Table(["token", "most lowered", "plain", "steered", "from", "to"], rows, texts=2)


def _token(text: str) -> str:
    return shown_text(text.replace(" ", "·").replace("\n", "⏎"), 40)
