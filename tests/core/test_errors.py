import pytest

from pairsmith.core.errors import (
    OtherWorkError,
    counted,
    errors_in_other_words,
    first_line,
    in_other_words,
    missing_file_hint,
    redacted,
    redacted_values,
    size_text,
)


def test_what_is_called_nearly_so_is_named(tmp_path):
    (tmp_path / "sentences.txt").touch()
    assert missing_file_hint(tmp_path / "sentnces.txt") == f"; did you mean {tmp_path / 'sentences.txt'}?"
    assert missing_file_hint(tmp_path / "zzz") == ""
    assert missing_file_hint(tmp_path / "no" / "zzz") == f"; there is no folder {tmp_path / 'no'} either"


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("one\ntwo"), "one"), (KeyError(), "KeyError"), (ValueError("x" * 201), f"{'x' * 199}…")],
)
def test_the_first_line_of_an_error(error, line):
    assert first_line(error) == line


@pytest.mark.parametrize(
    ("count", "phrase", "text"),
    [
        (1, "rows", "1 row"),
        (1, "repeated queries are", "1 repeated query is"),
        (1, "pairs have", "1 pair has"),
        (1, "are", "1 is"),
        (1, "processes", "1 process"),
        (0, "rows were", "0 rows were"),
        (1234, "training rows", "1,234 training rows"),
    ],
)
def test_a_number_before_a_phrase(count, phrase, text):
    assert counted(count, phrase) == text


def test_a_number_of_bytes_has_a_fitting_unit():
    sizes = [0, 999, 1000, 12_345, 999_949, 999_950, 1_500_000, 999_999_999, 1_234_500_000_000]
    texts = ["0 B", "999 B", "1.0 kB", "12.3 kB", "999.9 kB", "1.0 MB", "1.5 MB", "1.0 GB", "1,234.5 GB"]
    assert [size_text(size) for size in sizes] == texts


def letters(count):
    """So many letters and digits in no order that could be a word's."""
    return ("aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 8)[:count]


KEYS = [
    f"hf_{letters(34)}",
    f"hf_{'abcdefghijklmnopqrstuvwxyzabcdefgh'}",
    f"api_org_{letters(34)}",
    f"sk-{letters(20)}T3BlbkFJ{letters(20)}",
    f"sk-{'0123456789abcdef' * 2}",
    f"sk-or-v1-{'0123456789abcdef' * 4}",
    f"sk-proj-{letters(24)}-{letters(30)}_{letters(40)}",
    f"sk-proj-a_b-{letters(11)}_{letters(12)}-{letters(13)}",
    f"sk-ant-api03-{letters(31)}-{letters(31)}_{letters(27)}-AA",
    f"ghp_{letters(36)}",
    f"gho_{letters(36)}",
    f"github_pat_{letters(22)}_{letters(59)}",
    f"glpat-{letters(20)}",
    "AKIAIOSFODNN7EXAMPLE",
    f"AIza{letters(35)}",
    f"xoxb-123456789012-123456789012-{letters(24)}",
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "around", ["{}", "the key {} is wrong", "a={}, b", '{{"key": "{}"}}', "one\n{}.", "({})"]
)
def test_keys_are_known_by_their_form(key, around):
    assert redacted(around.format(key)) == around.format("***")


@pytest.mark.parametrize(
    "text",
    [
        "hf_sentences_mix and hf_encoder_tiny",
        "data/hf_sentences_of_many_languages_and_sources_2024/train.parquet",
        "hf_internationalisation",
        "sk-learn-based and sk-learn-based-model",
        "sk-proj-my-long-name-of-a-project-in-lower-case-words",
        "sk-project-with-a-name-of-more-than-forty-characters",
        "a task-specific-encoder-of-many-many-words-and-layers, a risk-averse one",
        "ghp_notes, gho_st, github_pat_terns, glpat-terns",
        "AKIA and AKIAIOSFODNN, AKIAIOSFODNN7EXAMPLES",
        "xoxo-from-all-of-us-who-were-at-the-party",
        "0123456789abcdef" * 4,  # a checksum
        "http://127.0.0.1:8000/v1#org/model@main",
        "http://[::1]:8000/v1#org/model@main",
        "hf://datasets/org/name@main/train.csv",
        "mail me@home.org about https://home.org/page?page=2&tokens=5",
    ],
)
def test_names_that_begin_like_keys_are_no_secrets(text):
    assert redacted(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pass@home.org/x", "https://***@home.org/x"),
        ("https://me:1234@home.org:80/x", "https://***@home.org:80/x"),
        ("https://me:pa:ss/w@home.org/x", "https://***@home.org/x"),
        ("https://word@home.org/x", "https://***@home.org/x"),
        ("https://h:80/?token=abc", "https://h:80/?token=***"),
        ("https://h/?a=1&key=abc&b=2", "https://h/?a=1&key=***&b=2"),
        ("https://h/?a=1&amp;key=abc", "https://h/?a=1&amp;key=***"),
        ("https://h/#access_token=abc", "https://h/#access_token=***"),
        (
            "https://h/x?X-Amz-Credential=a%2Fb&X-Amz-Date=1&X-Amz-Signature=0f",
            "https://h/x?X-Amz-Credential=***&X-Amz-Date=1&X-Amz-Signature=***",
        ),
    ],
)
def test_what_a_url_lets_in_with_is_a_secret(text, shown):
    assert redacted(text) == shown
    assert redacted(shown) == shown


def test_secrets_are_taken_out_of_records_and_names_are_not():
    record = {"columns": ["hf_encoder_tiny", KEYS[0]], "model": {"name": "sk-learn-based"}, "rows": 3}
    shown = {"columns": ["hf_encoder_tiny", "***"], "model": {"name": "sk-learn-based"}, "rows": 3}
    assert redacted_values(record) == shown


@pytest.mark.parametrize("part", ["sk-", "sk-a", "hf_", "://a:", "?key", "-sk-proj-", "A", "a_"])
def test_long_texts_hold_nothing_up(part):
    assert redacted(part * 3_000) == part * 3_000


def test_options_in_the_words_of_a_recipe():
    words = {"top_p": "pairs.top_p", "map": "pairs.map", "keep_vectors": "pairs.keep_vectors"}
    assert in_other_words("give --top-p 0.5, or --out; not a--map", words) == (
        "give pairs.top_p 0.5, or --out; not a--map"
    )
    assert in_other_words("--map 0=bad: leave --no-keep-vectors out", words) == (
        "pairs.map 0=bad: leave pairs.keep_vectors false out"
    )
    assert in_other_words("run pairsmith mine --map x; or give --map\n--map", words) == (
        "run pairsmith mine --map x; or give pairs.map\npairs.map"
    )


def test_an_error_in_other_words_is_the_same_error():
    error, words = OtherWorkError("give --map", "inputs"), {"map": "pairs.map"}
    with pytest.raises(OtherWorkError, match=r"^give pairs\.map$") as caught, errors_in_other_words(words):
        raise error
    assert caught.value is error
    assert error.changed == "inputs"
