import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsmith.core.errors import TaskError
from pairsmith.core.yamlfile import read_yaml
from pairsmith.data.tasks import Decoding, TaskSpec, builtin_path, builtin_tasks, load_task
from pairsmith.data.tasks.loading import read_task

GOOD = """\
name: mine
kind: pair
labels:
  1:
    instruction: |-
      Sentence 1: "<X1>"
      Sentence 2: "
  0:
    instruction: 'Other: "<X1>" and "'
    counter_labels: higher
decoding: {top_k: 3}
"""

TEXT = """\
name: mine
kind: text
labels:
  good:
    instruction: 'Review: "'
  bad:
    instruction: 'Bad review: "'
    counter_labels: [good]
"""


@pytest.fixture
def write(tmp_path):
    def writer(text):
        path = tmp_path / "task.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return writer


def faults(path: Path) -> list[str]:
    """The lines of the error, without the folder."""
    with pytest.raises(TaskError) as caught:
        load_task(path)
    return [line.removeprefix(f"{path.parent}/") for line in str(caught.value).split("\n")]


# the built-in tasks


def test_the_built_in_tasks():
    assert builtin_tasks() == (
        "movie-reviews", "movie-sentences", "nli", "paraphrase", "sts", "sts-x1", "subjectivity", "topic",
    )  # fmt: skip


@pytest.mark.parametrize("name", builtin_tasks())
def test_a_built_in_task_loads_by_its_name_and_describes_itself(name):
    task = load_task(name)
    assert task.name == name
    assert task.description.endswith(".")


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("1", "mean the same thing"),
        ("0.5", "are somewhat similar"),
        ("0", "are on completely different topics"),
    ],
)
def test_the_instructions_of_sts_are_the_papers(label, words):
    task = load_task("sts")
    assert (
        task.instruction(label)
        == f'Task: Write two sentences that {words}.\nSentence 1: "<X1>"\nSentence 2: "'
    )
    assert task.schema_kind == "scored_pair"


def test_the_counter_labels_and_the_decoding_of_sts_are_the_papers():
    task = load_task("sts")
    assert [task.counters(name) for name in ("1", "0.5", "0")] == [(), ("1",), ("1", "0.5")]
    of_the_paper = {"top_k": 5, "top_p": 0.9, "max_tokens": 40, "per_input": 2, "tries": 5}
    assert task.decoding.model_dump(include=of_the_paper.keys()) == of_the_paper
    assert task.decoding.rule == "self-debiasing"


def test_sts_x1_is_sts_cut_after_the_first_quotation_mark():
    pairs, first = load_task("sts"), load_task("sts-x1")
    for name in pairs.label_names:
        assert first.instruction(name) == pairs.instruction(name).split("<X1>")[0]
        assert first.counters(name) == ()
    assert (first.decoding.top_k, first.decoding.top_p) == (0, 0.9)
    assert first.decoding.per_input * len(first.labels) == 15_000


def test_movie_reviews_are_the_papers():
    task = load_task("movie-reviews")
    assert task.instruction("good") == 'Task: Write a review for a good movie.\nReview: "'
    assert task.counters("good") == ("bad",)


def test_an_unknown_name_lists_the_built_in_tasks_and_the_nearest():
    with pytest.raises(TaskError) as caught:
        load_task("paraphrases")
    assert str(caught.value) == (
        "no built-in task is called 'paraphrases'; did you mean 'paraphrase'? "
        "known: movie-reviews, movie-sentences, nli, paraphrase, sts, sts-x1, subjectivity, topic. "
        "To use a task of your own, give the path of its YAML file."
    )


def test_a_name_that_is_too_long_for_a_path_is_unknown():
    with pytest.raises(TaskError, match="no built-in task is called 'xxx"):
        load_task("x" * 300)


def test_a_built_in_name_wins_over_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sts").write_text(GOOD)
    Path("mine").write_text(GOOD)
    assert load_task("sts").name == "sts"
    assert load_task("./sts").name == "mine"
    assert load_task("mine").name == "mine"


# files


def test_a_file_loads(write):
    task = load_task(write(GOOD))
    assert task.label_names == ("1", "0")
    assert task.decoding.top_k == 3
    assert task.counters("0") == ("1",)


def test_a_byte_order_mark_and_crlf_change_nothing(write):
    plain = load_task(write(GOOD))
    assert load_task(write(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())) == plain


def test_a_missing_file_names_the_nearest(write):
    path = write(GOOD)
    assert faults(path.with_name("tasks.yaml")) == [
        f"there is no file {path.with_name('tasks.yaml')}; did you mean {path}?"
    ]


def test_a_missing_folder(tmp_path):
    assert faults(tmp_path / "no" / "task.yaml") == [
        f"there is no file {tmp_path}/no/task.yaml; there is no folder {tmp_path}/no either"
    ]


def test_a_folder(tmp_path):
    with pytest.raises(TaskError, match="is a folder; expected a YAML file"):
        load_task(f"{tmp_path}/")


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing yet\n", "---\n"])
def test_an_empty_file(write, text):
    assert len(messages := faults(write(text))) == 1
    assert "empty" in messages[0] or "single value" in messages[0]


def test_a_huge_file_is_not_read(write):
    assert faults(write("#" * 1_000_001)) == [
        "task.yaml is larger than 1,000,000 bytes; expected a YAML file of a page or two"
    ]


def test_an_encoding_other_than_utf8_names_the_line(write):
    assert faults(write(GOOD.replace("Other", "Größe").encode("latin1"))) == [
        "task.yaml:9: the file is not UTF-8; re-save it as UTF-8 (e.g. iconv -f latin1 -t utf-8)"
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: [a\nkind: pair\n", 2, "not valid YAML: expected"),
        ("name: a\n\tkind: pair\n", 2, "cannot start any token; indent with spaces, not tabs"),
        ('name: Text: "\n', 1, "not allowed here; a value with a colon needs quotation marks, or a block"),
        ("name: a\n---\nname: b\n", 2, "not valid YAML: but found another document"),
        (
            "name: !!python/object/apply:os.system ['true']\n",
            1,
            "could not determine a constructor for the tag",
        ),
        ("- a\n- b\n", 1, "expected keys and values, not a list"),
        ("a\n", 1, "expected keys and values, not a single value"),
        ("a: b\n? {d: e}\n: f\n", 2, "not valid YAML: found unhashable key"),
    ],
)
def test_what_is_not_a_yaml_mapping(write, text, line, words):
    (only,) = faults(write(text))
    assert only.startswith(f"task.yaml:{line}: ")
    assert words in only


def test_bad_yaml_that_pyyaml_reports_as_other_errors(write):
    assert "nested too deeply" in faults(write("name: " + "[" * 5000))[0]
    assert "put quotation marks round the value" in faults(write("name: 2021-13-41\n"))[0]
    assert faults(write("kind: text\nname: a\x00b\n")) == [
        "task.yaml:2: holds the character '\\x00', which YAML does not allow; remove it"
    ]
    assert faults(write('kind: text\nname: "a\\ud800b"\n')) == [
        "task.yaml:2: holds half of a character, '\\ud800'; write the whole character"
    ]
    # JSON, which YAML includes, writes characters beyond U+FFFF as two halves.
    assert read_yaml(write('"name": "smile \\ud83d\\ude00"\n'), TaskError).data == {
        "name": "smile \U0001f600"
    }


def test_utf_16_is_recognised(write):
    assert faults(write("name: a\n".encode("utf-16"))) == [
        "task.yaml is UTF-16 text; re-save it as UTF-8 (e.g. iconv -f utf-16 -t utf-8 task.yaml > new)"
    ]


def test_aliases_that_refer_to_one_another_do_not_hang(write):
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
    assert len(faults(write(bomb))) == 43  # 40 unknown keys, 3 missing ones
    for inside in ("name: &n [*n]\n", "kind: pair\nname: &n {a: [1, *n]}\n", "&n a: *n\nb: &m [[*m]]\n"):
        (fault,) = faults(write(inside))
        assert fault.endswith("an alias (*) here refers to a value that contains it; write it out")


# what stands in a file


@pytest.mark.parametrize(
    ("source", "old", "new", "expected"),
    [
        (GOOD, "kind: pair\n", "", "task.yaml:1: kind: missing; it has no default, so add it"),
        (
            GOOD,
            "kind: pair",
            "kind: pairs",
            "task.yaml:2: kind: should be 'pair' or 'text', not 'pairs'; did you mean 'pair'?",
        ),
        (GOOD, "name: mine", "name: 3", "task.yaml:1: name: should be a valid string, not 3"),
        (
            GOOD,
            "name: mine",
            "name: my task",
            "task.yaml:1: name: a name is 1 to 64 letters of any script, digits, dots, hyphens or underscores "
            "and starts with a letter or digit, not 'my task'",
        ),
        (
            GOOD,
            "decoding: {top_k: 3}",
            "decodng: {}",
            "task.yaml:11: decodng: unknown key; did you mean 'decoding'? "
            "known: decoding, description, format, kind, labels, name, written",
        ),
        (
            GOOD,
            "{top_k: 3}",
            "{top_p: 1.5}",
            "task.yaml:11: decoding.top_p: should be less than or equal to 1, not 1.5",
        ),
        (
            GOOD,
            "{top_k: 3}",
            "{topk: 3}",
            "task.yaml:11: decoding.topk: unknown key; did you mean 'top_k'? "
            "known: decay, floor, max_tokens, per_input, plausible, rule, scale, strength, "
            "top_k, top_p, tries",
        ),
        (GOOD, "{top_k: 3}", "3", "task.yaml:11: decoding: should be a mapping of keys to values, not 3"),
        (
            GOOD,
            "counter_labels",
            "counters",
            "task.yaml:10: labels.0.counters: unknown key; did you mean 'counter_labels'? "
            "known: counter_labels, instruction, more_instructions, near_copies",
        ),
        (
            GOOD,
            "    counter_labels: higher",
            "    name: zero",
            "task.yaml:10: labels.0.name: unknown key; the key above it is already the label's name",
        ),
        (
            GOOD,
            "counter_labels: higher",
            "counter_labels: [0.7]",
            "task.yaml:10: labels.0.counter_labels: unknown counter-label 0.7; known: 0, 1",
        ),
        (
            GOOD,
            "counter_labels: higher",
            "counter_labels: [1, 0]",
            "task.yaml:10: labels.0.counter_labels: the label 0 cannot be a counter-label of itself; "
            "remove it",
        ),
        (
            GOOD,
            "counter_labels: higher",
            "counter_labels: [1, 1.0]",
            "task.yaml:10: labels.0.counter_labels: the counter-label 1 is listed twice; keep one",
        ),
        (
            GOOD,
            "counter_labels: higher",
            "counter_labels: lower",
            "task.yaml:10: labels.0.counter_labels: should be a list of labels, `higher` or `others`, "
            "not 'lower'",
        ),
        (
            TEXT,
            "[good]",
            "higher",
            "task.yaml:8: labels.bad.counter_labels: `higher` needs labels that are numbers; "
            "use `others` or a list",
        ),
        (
            TEXT,
            "[good]",
            "[goood]",
            "task.yaml:8: labels.bad.counter_labels: unknown counter-label goood; did you mean 'good'? "
            "known: bad, good",
        ),
        (
            TEXT,
            "counter_labels: [good]",
            "near_copies: keep",
            "task.yaml:8: labels.bad.near_copies: only pair tasks have near-copies; remove this key",
        ),
        (
            GOOD,
            '"<X1>" and "',
            '"',
            "task.yaml:9: labels.0.instruction: a pair task's instruction must hold <X1> once, "
            "for the first text; here: 0 times",
        ),
        (
            GOOD,
            '"<X1>" and "',
            '"<X1>" <X1> "',
            "task.yaml:9: labels.0.instruction: a pair task's instruction must hold <X1> once, "
            "for the first text; here: 2 times",
        ),
        (
            TEXT,
            'Bad review: "',
            '"<X1>" "',
            "task.yaml:7: labels.bad.instruction: a text task has no first text, so its instruction "
            "cannot hold <X1>; remove it",
        ),
        (
            TEXT,
            "counter_labels: [good]",
            "more_instructions: ['Bad review: ']",
            'task.yaml:8: labels.bad.more_instructions.0: must end with an opening quotation mark ("), not '
            "'Bad review: '; a block begun with |- has no line break at its end",
        ),
        (
            GOOD,
            "instruction: |-",
            "instruction: |",
            'task.yaml:5: labels.1.instruction: must end with an opening quotation mark ("), not '
            "'…ntence 2: \"\\n'; a block begun with |- has no line break at its end",
        ),
        (
            TEXT,
            'Review: "',
            'Review: ""',
            'task.yaml:5: labels.good.instruction: the " at its end closes an earlier one; '
            "end with one that opens the model's text",
        ),
        (
            TEXT,
            "'Review: \"'",
            "7",
            "task.yaml:5: labels.good.instruction: should be a valid string, not 7",
        ),
        (
            TEXT,
            "    instruction: 'Review: \"'\n",
            "",
            "task.yaml:4: labels.good: should be a mapping of keys to values, not nothing",
        ),
        (
            TEXT,
            "  good:",
            "  yes:",
            "task.yaml:4: labels.True.name: YAML reads this label as true (like yes, no, on, off and ~); "
            "put quotation marks round it",
        ),
        (
            TEXT.replace("[good]", "[]"),
            "  good:",
            "  .inf:",
            "task.yaml:4: labels.inf.name: a label that is a number must be finite and below 1e15, not inf",
        ),
        (
            TEXT.replace("[good]", "[]"),
            "  good:",
            "  2020-01-01:",
            "task.yaml:4: labels.2020-01-01.name: a label is a number or a name, not "
            "datetime.date(2020, 1, 1); put quotation marks round a name",
        ),
        (
            TEXT.replace("[good]", "[]"),
            "  good:",
            "  3:",
            "task.yaml:3: labels: labels are all numbers or all names, not both; given: 3, bad",
        ),
        (
            GOOD,
            "  1:",
            "  0.0:",
            "task.yaml:4: labels.0: 0 is given twice (lines 4 and 8); keep one of them",
        ),
        (
            GOOD,
            "kind: pair",
            "kind: pair\nkind: pair",
            "task.yaml:2: kind: 'kind' is given twice (lines 2 and 3); keep one of them",
        ),
    ],
)
def test_each_fault_is_one_line_with_its_place_and_a_remedy(write, source, old, new, expected):
    assert old in source
    assert expected in faults(write(source.replace(old, new, 1)))


@pytest.mark.parametrize("name", ["' good'", "''", '"a\\nb"', '"a\\u200bb"', "x" * 101])
def test_a_label_name_that_cannot_stand_in_a_line(write, name):
    messages = faults(write(TEXT.replace("  good:", f"  {name}:").replace("[good]", "[]")))
    assert any("a label's name is 1 to 100 printable characters" in line for line in messages)


def test_a_quoted_number_and_a_number_are_the_same_label(write):
    (mixed, twice) = faults(
        write(GOOD.replace("  0:", '  "1":').replace("counter_labels: higher", "near_copies: drop"))
    )
    assert mixed == "task.yaml:3: labels: labels are all numbers or all names, not both; given: 1, 1"
    assert twice == "task.yaml:8: labels.1: the label 1 is given twice; remove or rename one of them"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("labels: {}", "is empty; at least one is needed"),
        ("labels:", "should be a mapping from each label to its instruction, not nothing"),
        ("labels: good", "should be a mapping from each label to its instruction, not 'good'"),
        (
            "labels: [{name: a, instruction: 'x \"'}]",
            "should be a mapping from each label to its instruction, not a list",
        ),
    ],
)
def test_labels_that_are_no_mapping_or_none(write, labels, words):
    (only,) = faults(write(f"name: a\nkind: text\n{labels}\n"))
    assert only.startswith("task.yaml:3: labels: ")
    assert words in only


def test_all_faults_are_reported_at_once_in_the_order_of_the_lines(write):
    text = """\
kind: pear
labels:
  1:
    instruction: "twice <X1> <X1>"
    counter_labels: [1, 2]
  0: {instruction: 4, near_copies: maybe}
decoding: {tries: 0, tris: 5}
"""
    messages = faults(write(text))
    assert [line.split(" ")[0] for line in messages] == [
        "task.yaml:1:",
        "task.yaml:1:",
        "task.yaml:4:",
        "task.yaml:5:",
        "task.yaml:5:",
        "task.yaml:6:",
        "task.yaml:6:",
        "task.yaml:7:",
        "task.yaml:7:",
    ]


# any task

label_numbers = st.floats(-1e6, 1e6, allow_nan=False)
label_words = st.text(min_size=1, max_size=20).filter(lambda s: s == s.strip() and s.isprintable())
prose = st.text(max_size=60).map(lambda s: s.replace('"', "").replace("<X1>", ""))


@st.composite
def task_specs(draw):
    kind = draw(st.sampled_from(["pair", "text"]))
    names = draw(
        st.one_of(
            st.lists(label_numbers, min_size=1, max_size=4, unique_by=lambda x: x + 0.0),
            st.lists(label_words, min_size=1, max_size=4, unique=True),
        )
    )
    numeric = isinstance(names[0], float)
    labels = []
    for name in names:
        others = [other for other in names if other != name]
        counters = [
            st.just("others"),
            st.lists(st.sampled_from(others), unique=True) if others else st.just([]),
        ]
        first = '"<X1>"' if kind == "pair" else ""
        labels.append(
            {
                "name": name,
                "instruction": f'{draw(prose)}{first}{draw(prose)}"',
                "counter_labels": draw(st.one_of(*counters, *([st.just("higher")] if numeric else []))),
                "near_copies": draw(st.sampled_from(["drop", "keep"])) if kind == "pair" else "drop",
            }
        )
    decoding = {
        "top_k": draw(st.integers(0, 100)),
        "top_p": draw(st.floats(0, 1, exclude_min=True)),
        "max_tokens": draw(st.integers(1, 500)),
        "per_input": draw(st.integers(1, 10)),
        "tries": draw(st.integers(1, 10)),
        "decay": draw(st.floats(0, 1e6)),
        "floor": draw(st.floats(0, 1)),
    }
    name = draw(st.from_regex(r"\A[a-z0-9][a-z0-9._-]{0,20}\Z"))
    return TaskSpec(
        name=name, description=draw(st.text(max_size=60)), kind=kind, labels=labels, decoding=decoding
    )


@settings(max_examples=60, deadline=None)
@given(task_specs())
def test_any_task_written_as_yaml_reads_back_equal(tmp_path_factory, spec):
    body = spec.model_dump(mode="json")
    body["labels"] = {label.pop("name"): label for label in body["labels"]}
    path = tmp_path_factory.mktemp("tasks") / "task.yaml"
    path.write_text(yaml.safe_dump(body, sort_keys=False), encoding="utf-8")
    assert read_task(path) == spec


@settings(max_examples=60, deadline=None)
@given(task_specs())
def test_counter_labels_never_hold_the_label_itself(spec):
    for name in spec.label_names:
        counters = spec.counters(name)
        assert name not in counters
        assert set(counters) <= set(spec.label_names)
        if spec.label(name).counter_labels == "higher":
            assert all(float(counter) > float(name) for counter in counters)
            assert math.isfinite(float(name))


def test_the_file_of_a_built_in_task_can_be_copied(tmp_path):
    copy = tmp_path / "copy.yaml"
    copy.write_bytes(builtin_path("sts").read_bytes())
    assert load_task(copy) == load_task("sts")


PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "tasks.md"


def test_the_examples_on_the_page_load(write):
    examples = [block.split("```")[0] for block in PAGE.read_text(encoding="utf-8").split("```yaml\n")[1:]]
    assert [load_task(write(example)).name for example in examples] == ["emails", "questions"]


def test_the_page_lists_every_built_in_task():
    text = PAGE.read_text(encoding="utf-8")
    for name in builtin_tasks():
        task = load_task(name)
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert row.endswith(f"| {', '.join(task.label_names)} |")


def test_the_page_gives_every_default():
    text = PAGE.read_text(encoding="utf-8")
    for key, value in Decoding().model_dump().items():
        shown = f"`{value}`" if isinstance(value, str) else f"{value:g}"
        assert f"| `{key}` | {shown} |" in text
