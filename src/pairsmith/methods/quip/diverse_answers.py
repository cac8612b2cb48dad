"""The choice of the answers that differ most, among those that beam search finds in a passage (Q2)."""

from collections.abc import Sequence

from pairsmith.metrics.squad import f1
from pairsmith.models.language.faults import TextFault

NOT_CHOSEN: TextFault = ("not chosen", "answers that differ more from each other were chosen")
"""The reason for rejecting the answers that are not chosen."""


def diverse(answers: Sequence[str], count: int) -> list[int]:
    """The indices of up to ``count`` answers that differ as much as possible, in the order of choice (Q2).

    The first answer is chosen first. Then, repeatedly, the answer is chosen whose largest F1 with any chosen
    answer is smallest; among equals, the first one. Empty and repeated answers are skipped.
    """
    seen: set[str] = set()
    remaining: list[int] = []
    for place, answer in enumerate(answers):
        if answer and answer.casefold() not in seen:
            seen.add(answer.casefold())
            remaining.append(place)
    selection: list[int] = []

    def largest_f1(place: int) -> float:
        return f1(answers[place], [answers[other] for other in selection]) if selection else 0.0

    while remaining and len(selection) < count:
        most_different = min(remaining, key=largest_f1)
        remaining.remove(most_different)
        selection.append(most_different)
    return selection
