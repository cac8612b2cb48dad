"""Choose, of the answers that a search found in a passage, those that differ most (Q2)."""

from collections.abc import Sequence

from pairsmith.metrics.squad import f1
from pairsmith.models.language.faults import TextFault

NOT_CHOSEN: TextFault = ("not chosen", "answers that differ more from each other were chosen")
"""Why the other answers are rejected."""


def diverse(answers: Sequence[str], count: int) -> list[int]:
    """The indices of up to ``count`` answers that differ as much as possible, in the order of choice (Q2).

    The first answer is taken, then repeatedly the one whose largest F1 with an answer taken before is
    smallest; of equals the first. Empty and repeated answers are skipped.
    """
    known: set[str] = set()
    left: list[int] = []
    for place, answer in enumerate(answers):
        if answer and answer.casefold() not in known:
            known.add(answer.casefold())
            left.append(place)
    selection: list[int] = []

    def largest_f1(place: int) -> float:
        return f1(answers[place], [answers[other] for other in selection]) if selection else 0.0

    while left and len(selection) < count:
        best = min(left, key=largest_f1)
        left.remove(best)
        selection.append(best)
    return selection
