"""Characters that a sampled text may contain."""

import pytest

from pairsmith.models.language.faults import fault_of_text


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم",  # Persian is spelt with a joiner
        "क्\u200dष",
        "👩\u200d👩\u200d👧",
        "«\u00a0Bonjour\u202f!\u00a0»",
        "東京\u3000大阪",
        "\u200fسلام\u200e (OK)",
        "ភាសា\u200bខ្មែរ",
    ],
)
def test_what_spelling_needs_is_kept(text):
    assert fault_of_text(text, "stop") is None


@pytest.mark.parametrize("character", ["\ufffd", "\x07", "\x85", "\u202e", "\ue000", "\ufeff"])
def test_what_is_no_text_is_not(character):
    fault = fault_of_text(f"half{character}text", "stop")
    assert fault is not None


@pytest.mark.parametrize("text", ["", " ", "\u200b", "\u200d \u00ad", "\u200f\u200e"])
def test_a_text_of_invisible_characters_is_empty(text):
    assert fault_of_text(text, "stop") == ("empty", "nothing before the quotation mark")
