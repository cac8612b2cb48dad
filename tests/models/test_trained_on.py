import pytest

from pairsmith.core.errors import ModelError
from pairsmith.models.trained_on import TRAINED_ON, fingerprint_of, read_trained_on, write_trained_on


def test_texts_that_differ_in_case_and_punctuation_share_a_fingerprint():
    assert fingerprint_of("A masterpiece.") == fingerprint_of("a  Masterpiece!")
    assert fingerprint_of("A masterpiece.") != fingerprint_of("A disaster.")


def test_a_pair_has_one_in_either_order():
    assert fingerprint_of("One.", "two") == fingerprint_of("Two", "one")
    assert len({fingerprint_of("one", "two"), fingerprint_of("one two"), fingerprint_of("one")}) == 3


def test_they_are_read_as_they_were_written_and_a_model_without_them_has_none(tmp_path):
    assert read_trained_on(str(tmp_path)) == frozenset()
    assert read_trained_on("org/model") == frozenset()
    write_trained_on(tmp_path, ["b" * 16, "a" * 16, "b" * 16])
    assert (tmp_path / TRAINED_ON).read_text() == f"{'a' * 16}\n{'b' * 16}\n"
    assert read_trained_on(str(tmp_path)) == {"a" * 16, "b" * 16}
    (tmp_path / TRAINED_ON).write_bytes(b"\xff")
    with pytest.raises(ModelError, match=r"trained-on\.txt cannot be read"):
        read_trained_on(str(tmp_path))
