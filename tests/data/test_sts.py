import gzip
import os

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.schemas import GradedPair
from pairsmith.data.sts import STS_SUITES, SUBSETS, StsSuite, read_sts

STSB = (
    'main-news\theadlines\t2015\t0001\t2.500\t"Open, he said\tHe said "open\n'
    "main-captions\tMSRvid\t2012test\t0024\t5.000\tA girl.\tOne girl.\tPASCAL1\tPASCAL2\n"
)
SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def semeval(folder, name, text="1.0\ta\tb\n"):
    for subset in SUBSETS[name]:
        put(folder / f"{subset}.test.tsv", text)
    return folder


@pytest.fixture
def data(tmp_path):
    put(tmp_path / "stsb" / "sts-test.csv", STSB)
    put(tmp_path / "stsb" / "sts-train.csv", STSB * 3)
    put(tmp_path / "sick" / "SICK_test_annotated.txt", f"{SICK_HEADER}\r\n6\tx y\tz\t3.3\tNEUTRAL\r\n")
    put(tmp_path / "sick" / "SICK_train.txt", f"{SICK_HEADER}\n1\ta\tb\t1\tNEUTRAL\n")
    semeval(tmp_path / "sts12-16" / "2012", "sts12")
    semeval(tmp_path / "sts12-16" / "2013", "sts13", '0.6\t  "a \tb\n\tno\tgold\n\n4\tc\td\n')
    put(tmp_path / "sts12-16" / "2012" / "MSRpar.train.tsv", "1\ttrain\ttrain\n")
    return tmp_path


def test_all_that_is_there_in_order(data):
    suites = read_sts(data)
    assert [suite.name for suite in suites] == ["stsb", "sts12", "sts13", "sick"]
    assert STS_SUITES == ("stsb", "sts12", "sts13", "sts14", "sts15", "sts16", "sick")
    assert tuple(suites[1].subsets) == SUBSETS["sts12"]
    assert tuple(suites[2].subsets) == ("FNWN", "headlines", "OnWN")


def test_benchmark_lines_have_bare_quotes_and_sometimes_two_columns_more(data):
    (suite,) = read_sts(data, ["stsb"])
    expected = (GradedPair('"Open, he said', 'He said "open', 2.5), GradedPair("A girl.", "One girl.", 5.0))
    assert suite == StsSuite("stsb", {"stsb": expected})
    assert suite.pairs == expected


def test_rows_without_gold_are_no_test_rows_and_training_parts_are_not_read(data):
    sts13, sts12 = read_sts(data, ["sts13", "sts12"])
    assert sts13.subsets["FNWN"] == (GradedPair('"a', "b", 0.6), GradedPair("c", "d", 4.0))
    assert len(sts13.pairs) == 6
    assert sts12.pairs == (GradedPair("a", "b", 1.0),) * 5


def test_sick_is_read_by_its_header(data):
    assert read_sts(data, ["sick"])[0].pairs == (GradedPair("x y", "z", 3.3),)


def test_the_whole_sick_file_gives_its_test_part(tmp_path):
    header = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tSemEval_set"
    put(tmp_path / "SICK" / "SICK.txt", f"{header}\n1\ta\tb\tX\t1\tTRAIN\n2\tc\td\tX\t2\tTEST\n")
    assert read_sts(tmp_path)[0].pairs == (GradedPair("c", "d", 2.0),)


@pytest.mark.parametrize(
    ("inside", "names"),
    [("stsb", ["stsb"]), ("sick", ["sick"]), ("sts12-16", ["sts12", "sts13"]), ("sts12-16/2013", ["sts13"])],
)
def test_the_folder_may_itself_be_one(data, inside, names):
    assert [suite.name for suite in read_sts(data / inside)] == names


@pytest.mark.parametrize(
    "folder", ["2014", "sts14", "STS14", "STS14-en-test", "sts-en-test-gs-2014", "SemEval_2014"]
)
def test_names_of_a_year(tmp_path, folder):
    semeval(tmp_path / folder, "sts14")
    assert [suite.name for suite in read_sts(tmp_path)] == ["sts14"]


def test_the_released_files_side_by_side(tmp_path):
    folder = tmp_path / "STS16-en-test"
    for subset in SUBSETS["sts16"]:
        put(folder / f"STS.input.{subset}.txt", "a\tb\tsource\tsource\nno\tgold\t\t\nc\td\t\t\ne\tf\n")
        put(folder / f"STS.gs.{subset}.txt", "4\n\n2.5\n\n\n")
    (suite,) = read_sts(tmp_path)
    assert suite.subsets["plagiarism"] == (GradedPair("a", "b", 4.0), GradedPair("c", "d", 2.5))


def test_the_released_files_have_to_match(tmp_path):
    folder = semeval(tmp_path / "2013", "sts13")
    (folder / "FNWN.test.tsv").unlink()
    put(folder / "STS.input.FNWN.txt", "a\tb\nc\td\n")
    put(folder / "STS.gs.FNWN.txt", "1\n")
    with pytest.raises(InputError, match=r"STS\.gs\.FNWN\.txt has 1 lines, STS\.input\.FNWN\.txt has 2"):
        read_sts(tmp_path)
    put(folder / "STS.gs.FNWN.txt", "1\n2\n3\n")
    with pytest.raises(InputError, match="has 3 lines, "):
        read_sts(tmp_path)
    put(folder / "STS.input.FNWN.txt", "a\tb\nno tab\n3\t3\n")
    with pytest.raises(InputError, match=r"STS\.input\.FNWN\.txt:2: no tab between two texts"):
        read_sts(tmp_path)


def test_2013_smt_is_left_out(data):
    put(data / "sts12-16" / "2013" / "SMT.test.tsv", "1\tx\ty\n")
    assert "SMT" not in read_sts(data, ["sts13"])[0].subsets


def test_gzip(tmp_path):
    (tmp_path / "stsb").mkdir()
    (tmp_path / "stsb" / "sts-test.csv.gz").write_bytes(gzip.compress(STSB.encode()))
    assert len(read_sts(tmp_path)[0].pairs) == 2


@pytest.mark.parametrize("name", ["graded.tsv", "graded.v1.tsv", ".graded.tsv"])
def test_one_graded_file_is_a_suite_of_its_stem(tmp_path, name):
    file = put(tmp_path / name, 'sentence1\tsentence2\tscore\n"a\tb\t0.25\n')
    expected = StsSuite("graded", {"graded": (GradedPair('"a', "b", 0.25),)})
    assert read_sts(file) == [expected]
    assert read_sts(file, ["graded"]) == [expected]
    with pytest.raises(InputError, match="has no 'stsb'; it has: graded"):
        read_sts(file, ["stsb"])


def test_a_released_file_by_itself(data):
    assert len(read_sts(data / "stsb" / "sts-train.csv")[0].pairs) == 6
    assert read_sts(data / "stsb" / "sts-train.csv")[0].name == "sts-train"
    assert read_sts(data / "sick" / "SICK_train.txt")[0].pairs == (GradedPair("a", "b", 1.0),)


def test_a_file_of_another_kind(tmp_path):
    file = put(tmp_path / "notes.txt", "a\n")
    with pytest.raises(InputError, match=r"notes\.txt is not a file of graded pairs; expected one of \.tsv"):
        read_sts(file)


def test_a_named_suite_that_is_not_there(data):
    with pytest.raises(InputError, match="has no 'sts16'; it has: stsb, sts12, sts13, sick"):
        read_sts(data, ["sts16"])


def test_an_unknown_suite_names_the_nearest(data):
    with pytest.raises(InputError, match="no test set is called 'stsB'; did you mean 'stsb'\\?"):
        read_sts(data, ["stsB"])


def test_a_year_with_a_subset_missing_is_refused(data):
    (data / "sts12-16" / "2012" / "MSRvid.test.tsv").unlink()
    with pytest.raises(
        InputError, match="2012 lacks MSRvid of sts12; without them the score cannot be compared"
    ):
        read_sts(data)
    assert [suite.name for suite in read_sts(data, ["stsb", "sts13"])] == ["stsb", "sts13"]


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match="holds none of stsb, sts12, "):
        read_sts(tmp_path)
    with pytest.raises(InputError, match="nowhere does not exist"):
        read_sts(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "stsb/sts-test.csv",
            "\na\tb\tc\n",
            r"sts-test\.csv:2: 3 columns separated by tabs, an STS benchmark line",
        ),
        ("stsb/sts-test.csv", "g\tf\ty\t1\thigh\ta\tb\n", r"sts-test\.csv:1: the score is 'high'"),
        ("stsb/sts-test.csv", "g\tf\ty\t1\t2\ta\t \n", r"sts-test\.csv:1: a text is blank"),
        (
            "sick/SICK_test_annotated.txt",
            "a\tb\n",
            r"SICK_test_annotated\.txt:1: not a SICK header, as it lacks relat",
        ),
        (
            "sick/SICK_test_annotated.txt",
            f"{SICK_HEADER}\n\n1\ta\n",
            r"SICK_test_annotated\.txt:3: 2 columns",
        ),
        ("sts12-16/2012/MSRpar.test.tsv", "1\ta\n", r"MSRpar\.test\.tsv:1: 2 columns separated by tabs"),
    ],
)
def test_a_bad_line_is_named(data, file, text, message):
    put(data / file, text)
    with pytest.raises(InputError, match=message):
        read_sts(data)


def test_a_suite_has_a_name_that_can_be_written(tmp_path):
    file = tmp_path / os.fsdecode(b"caf\xe9.dev.csv")
    file.write_text("sentence1,sentence2,score\na,b,1\n")
    assert [suite.name for suite in read_sts(file)] == ["caf\\xe9"]
