"""The table of all steps that recipes and the command line can run: the methods' steps and the tools."""

from pairsmith.core.model_names import check_name
from pairsmith.steps.step import Step, StepTable
from pairsmith.steps.table import STEPS as WITHOUT_TOOLS
from pairsmith.tools.settings import (
    AuditSettings,
    ExportSettings,
    PushSettings,
    RemoveSettings,
    ReportSettings,
)

SOURCE_SETTINGS = frozenset({
    "inputs", "outputs", "data", "pairs", "seeds", "added", "validation", "train", "documents", "queries",
    "corpus", "evaluation", "chunks", "judgements", "labelled", "mined", "examples", "ids", "questions",
    "reuse", "against", "texts",
})  # fmt: skip
"""Names of settings that name data to read.

In every step in which such a setting takes any text, its values are paths or Hub ids. In some steps a setting
of the same name is a number, or chooses from names.
"""

STEPS: StepTable = {
    **WITHOUT_TOOLS,
    "remove": Step(
        RemoveSettings,
        "pairsmith.tools.remove:remove",
        "Remove rows with certain texts or ids from a data set.",
    ),
    "export": Step(
        ExportSettings,
        "pairsmith.tools.export.route:export",
        "Export rows in the format of another tool.",
        plan="pairsmith.runs.estimate:plan_tool",
    ),
    "push": Step(
        PushSettings,
        "pairsmith.tools.push.route:push",
        "Upload a data set or a model to the Hugging Face Hub.",
        plan="pairsmith.runs.estimate:plan_tool",
        folder_setting="dry_run",
    ),
    "report": Step(
        ReportSettings,
        "pairsmith.tools.report.route:report",
        "Write an HTML page about data, a model or a run.",
        plan="pairsmith.runs.estimate:plan_tool",
        checks={"encoder": check_name},
        of_runs=True,
    ),
    "audit": Step(
        AuditSettings,
        "pairsmith.tools.audit.route:audit",
        "Have people label rows whose labels they do not see.",
        plan="pairsmith.runs.estimate:plan_tool",
    ),
}
