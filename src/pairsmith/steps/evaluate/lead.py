"""The lead baseline for summaries: the first sentences of the document."""

import re
from collections.abc import Sequence

from pairsmith.core.errors import ModelError
from pairsmith.core.model_names import check_name

LEAD = "lead:"
_NUMBER = re.compile(r"[1-9]\d{0,3}")


def lead_count(model: str) -> int | None:
    """The number of sentences in ``lead:N``; None for any other model name."""
    if not model.startswith(LEAD):
        return None
    number = model.removeprefix(LEAD)
    if not _NUMBER.fullmatch(number):
        raise ModelError(f"model {model}: lead:N takes the first N sentences, such as lead:1 or lead:3")
    return int(number)


def check_summarizer_name(model: str) -> None:
    """Check that ``model`` can be a summariser, as far as its name shows."""
    if lead_count(model) is None:
        check_name(model)


def lead_summaries(documents: Sequence[str], count: int) -> list[str]:
    """The first ``count`` sentences of each document, one a line; all sentences if there are fewer."""
    from pairsmith.data.text import split_sentences

    return ["\n".join(each.text for each in split_sentences(text)[:count]) for text in documents]
