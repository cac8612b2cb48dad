"""What recipes and the command line run: the steps, and the tools as further ones."""

from pairsmith.core.model_names import check_name
from pairsmith.steps.step import Step, StepTable
from pairsmith.steps.table import STEPS as WITHOUT_TOOLS
from pairsmith.tools.settings import AuditSettings, ExportSettings, PushSettings, ReportSettings

SOURCE_SETTINGS = frozenset({
    "inputs", "outputs", "data", "pairs", "seeds", "added", "validation", "train", "documents", "queries",
    "corpus", "evaluation", "chunks", "judgements", "labelled",
})  # fmt: skip
"""Settings that name what a step reads; a text under one of these names is a source in every step."""

STEPS: StepTable = {
    **WITHOUT_TOOLS,
    "export": Step(
        ExportSettings,
        "pairsmith.tools.export.route:export",
        "Export rows in the format of another tool.",
        plan="pairsmith.runs.estimate:plan_little",
    ),
    "push": Step(
        PushSettings,
        "pairsmith.tools.push.route:push",
        "Upload a data set or a model to the Hugging Face Hub.",
        plan="pairsmith.runs.estimate:plan_little",
        folder_setting="dry_run",
    ),
    "report": Step(
        ReportSettings,
        "pairsmith.tools.report.route:report",
        "Write a one-page report about a folder.",
        plan="pairsmith.runs.estimate:plan_little",
        checks={"encoder": check_name},
        of_runs=True,
    ),
    "audit": Step(
        AuditSettings,
        "pairsmith.tools.audit.route:audit",
        "Have people label rows blind, in a browser.",
        plan="pairsmith.runs.estimate:plan_little",
    ),
}
