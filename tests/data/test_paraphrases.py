import gzip

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.paraphrases import Paraphrase, paraphrase_pairs, read_paraphrases, with_negatives


def read(path):
    return list(read_paraphrases(path))


def test_columns_by_any_of_their_names(tmp_path):
    path = tmp_path / "qqp.tsv"
    path.write_text("id\tquestion1\tquestion2\tis_duplicate\n0\tWhy?\tHow come?\t1\n1\tWhy?\tWhen?\t0\n")
    assert read(path) == [
        Paraphrase("Why?", "How come?", True, "0"),
        Paraphrase("Why?", "When?", False, "1"),
    ]


def test_rows_without_labels_are_paraphrases_that_nobody_labelled(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("sentence1,sentence2\nWhy?,How come?\n")
    assert read(path) == [Paraphrase("Why?", "How come?", None)]


@pytest.mark.parametrize("name", ["msr_paraphrase_test.txt.gz", "mrpc100.txt", "MRPC.TXT"])
def test_the_file_of_mrpc_is_a_table_though_it_is_called_text(tmp_path, name):
    path = tmp_path / name
    rows = '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tHe said "no.\tHe said no.\r\n'
    path.write_bytes(gzip.compress(rows.encode()) if path.suffix == ".gz" else rows.encode())
    assert read(path) == [Paraphrase('He said "no.', "He said no.", True)]


def test_a_text_file_without_a_header_holds_no_pairs(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("A text.\tAnother one.\n")
    with pytest.raises(InputError, match=r"it has: text$"):
        read(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("sentence1\tsentence2\tlabel\na\tb\t2\n", "label is '2'"),
        ("sentence1\tsentence2\tlabel\na\tb\t\n", "label is ''"),
        ("sentence1\tsentence2\tlabel\na\t \t1\n", "sentence2 is blank"),
        ("sentence1\tsentence2\tlabel\n", "no pairs"),
        ("one\ttwo\tlabel\na\tb\t1\n", "lacks the columns sentence1 or question1"),
    ],
)
def test_faults_are_told_with_their_place(tmp_path, rows, message):
    path = tmp_path / "pairs.tsv"
    path.write_text(rows)
    with pytest.raises(InputError, match=message):
        read(path)


def test_no_negatives_are_sampled_of_texts_without_words(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("sentence1\tsentence2\n!\t?\n…\t.\n")
    with pytest.raises(
        InputError, match=r"pairs.tsv: the texts hold no words, so no negatives .* add a column label"
    ):
        paraphrase_pairs(str(path), seed=1)


def test_a_file_that_is_not_there_is_told_at_once(tmp_path):
    for name in ("pairs.tsv", "msr_paraphrase_test.txt"):
        with pytest.raises(InputError, match="does not exist"):
            read_paraphrases(tmp_path / name)


def test_a_text_with_very_many_paraphrases_still_gets_a_negative():
    pairs = [Paraphrase("a man plays", f"a man plays no {number}", None) for number in range(150)]
    pairs += [Paraphrase("rain falls", "it rains", None), Paraphrase("dogs run", "two dogs run", None)]
    negatives = with_negatives(pairs, seed=1)[len(pairs) :]
    assert {pair.sentence2 for pair in negatives[:150]} == {"it rains", "two dogs run"}
