"""Candidate answers: the built-in rule on short passages, spaCy's with a small pipeline of its own."""

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.core.errors import MissingExtra, ModelError, SettingsError
from pairsmith.data.text import entities
from pairsmith.data.text.entities import (
    LONGEST_ANSWER,
    Entity,
    entities_of_texts,
    entity_finder,
    find_entities,
)

PIECES = [
    "The ",
    "Bank",
    " of ",
    "Rome",
    " and ",
    ", ",
    "J. ",
    "'s ",
    "1,500",
    " km",
    "$",
    " million",
    "–",
    "12 ",
    "March ",
    "1990",
    "s",
    '"',
    "(",
    ")",
    "-",
    "two ",
    "É",
    "\n",
    ". ",
]
HARD = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def entity_texts(text):
    return [entity.text for entity in find_entities(text)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("He saw the Bank of England.", ["Bank of England"]),
        ("Then J. K. Rowling, who is rich, met Dr. Jones.", ["J. K. Rowling", "Dr. Jones", "Jones"]),
        ("We met in St. Mary's.", ["St. Mary"]),
        ("It was Levi's Stadium.", ["Levi's Stadium"]),
        ("Jean-Luc O'Connor is here", ["Jean-Luc O'Connor"]),
        ("Ludwig van Beethoven, of Bonn", ["Ludwig van Beethoven", "Bonn"]),
        ("Émile Zola is dead", ["Émile Zola"]),
        ("the U.S. is big", ["U.S."]),
        ("in World War I.", ["World War I"]),
        ("Super Bowl 50 was", ["Super Bowl 50", "50"]),
        ("We met President Barack Obama", ["President Barack Obama", "Barack Obama"]),
    ],
)
def test_names(text, names):
    assert entity_texts(text) == names


@pytest.mark.parametrize(
    "text", ["The man is here.", "However, he left.", "In it, I was. A man.", "On or off"]
)
def test_a_function_word_that_begins_a_sentence_is_no_name(text):
    assert entity_texts(text) == []


def test_a_name_behind_one_is():
    assert entity_texts("In France, the Normans were many.") == ["France", "Normans"]


def test_names_come_with_a_noun_behind_and_joined():
    assert entity_texts("the Tesla coil of Rome and Milan") == [
        "Tesla",
        "Tesla coil",
        "Rome",
        "Rome and Milan",
        "Milan",
    ]


def test_a_participle_or_adverb_behind_is_no_noun():
    assert entity_texts("Rome wanted Milan badly") == ["Rome", "Milan"]


def test_what_is_tied_by_in_or_on_comes_whole_and_in_parts():
    assert entity_texts("the Museum in Rome") == ["Museum", "Museum in Rome", "Rome"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("it has 12,500.50 in all", ["12,500.50"]),
        ("at 12:30 or 9/11", ["12:30", "9/11"]),
        ("it rose 35%", ["35%"]),
        ("it rose 2.5 percent", ["2.5 percent"]),
        ("for $1.13bn and £600m", ["$1.13bn", "$1.13bn and £600m", "£600m"]),
        ("over $2.5 million", ["over $2.5 million", "$2.5 million"]),
        ("it is 15 km from here", ["15", "15 km"]),
        ("the 5th is mine", ["5th"]),
        ("in 1368–1644", ["1368", "1368–1644", "1644"]),
        ("in the early 1990s", ["early 1990s", "1990s"]),
        ("in 25 BC", ["25 BC"]),
        ("three million francs", ["three million", "three million francs"]),
        ("some twenty-one of us", ["twenty-one"]),
        ("two hundred sixteen", ["two hundred sixteen"]),
        ("the twenty-first century", ["twenty-first", "twenty-first century"]),
    ],
)
def test_numbers(text, numbers):
    assert entity_texts(text) == numbers


@pytest.mark.parametrize("text", ["x86 and b2b", "foneticism onesie oneself"])
def test_digits_and_number_words_inside_words_are_none(text):
    assert entity_texts(text) == []


@pytest.mark.parametrize(
    "date",
    ["12 March 1990", "March 12, 1990", "March 1990", "12 March", "3rd of May", "Jan. 5", "5th September"],
)
def test_dates(date):
    expected = "May" if " of " in date else date
    assert expected in entity_texts(f"it was {date}, I think")


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ('he wrote "of mice and men" here', "of mice and men"),
        ("he wrote “of mice and men” here", "of mice and men"),
        ("a cell (the lymphocyte) is", "the lymphocyte"),
        ("a twin-cylinder engine", "twin-cylinder"),
        ("a row of teeth called the lower comb is", "lower comb"),
        ("by photosynthesis it", "photosynthesis"),
    ],
)
def test_terms(text, term):
    assert entity_texts(text) == [term]


def test_what_stands_between_two_quotations_is_none():
    assert entity_texts('"yes" he said, "no"') == ["yes", "no"]


def test_each_text_once_where_it_stands_first_in_order():
    text = "Rome and Oslo; Oslo and Rome in 1990, not 1990."
    assert find_entities(text) == [
        Entity("Rome", 0),
        Entity("Rome and Oslo", 0),
        Entity("Oslo", 9),
        Entity("Oslo and Rome", 15),
        Entity("1990", 32),
    ]


@given(st.one_of(HARD, st.text(), st.text("aA1. -'\"")))
def test_candidates_stand_where_they_say_each_once_in_order(text):
    entities = find_entities(text)
    assert [text[entity.start : entity.start + len(entity.text)] for entity in entities] == [
        entity.text for entity in entities
    ]
    assert len({entity.text for entity in entities}) == len(entities)
    assert [entity.start for entity in entities] == sorted(entity.start for entity in entities)
    assert all(0 < len(entity.text) <= LONGEST_ANSWER for entity in entities)


@pytest.mark.parametrize(
    "piece",
    [
        "A",
        "A ",
        "A. ",
        "A-",
        "In-",
        "1",
        "1/",
        "1 ",
        "1–",
        "one ",
        "a-",
        '"',
        "(",
        "A's ",
        "King ",
        "é",
        "1 May ",
    ],
)
def test_time_grows_with_the_text_whatever_stands_in_it(piece):
    begun = time.process_time()
    find_entities(piece * (300_000 // len(piece)) + "of Z1")
    assert time.process_time() - begun < 10  # less than a second; quadratic time would be an hour


def test_the_rule_by_its_name():
    assert entity_finder("rule") is find_entities


@pytest.mark.parametrize("name", ["rules", "spacy", "spacy:", ""])
def test_an_unknown_finder_lists_the_known(name):
    with pytest.raises(SettingsError, match=r"no answer finder is called .*known: rule, spacy:MODEL"):
        entity_finder(name)


class TestSpacy:
    @pytest.fixture
    def spacy(self):
        return pytest.importorskip("spacy")

    @pytest.fixture
    def model(self, spacy, tmp_path):
        pipeline = spacy.blank("en")
        ruler = pipeline.add_pipe("entity_ruler")
        ruler.add_patterns([{"label": "CITY", "pattern": "Paris"}, {"label": "CITY", "pattern": "New York"}])
        pipeline.to_disk(tmp_path / "model")
        return f"spacy:{tmp_path / 'model'}"

    def test_its_entities_each_once(self, model):
        find = entity_finder(model)
        assert find("In New York, Paris and New York.") == [Entity("New York", 3), Entity("Paris", 13)]
        assert find("nothing 1990") == []

    def test_passages_in_batches_are_what_each_is_alone(self, model, monkeypatch):
        monkeypatch.setattr(entities, "_PASSAGES", 2)
        find, passages = (
            entity_finder(model),
            ["Paris.", "", "New York and Paris.", "nothing", "Paris, Paris"],
        )
        assert list(entities_of_texts(model)(iter(passages))) == [find(passage) for passage in passages]

    def test_a_model_that_is_not_there(self, spacy):
        with pytest.raises(
            ModelError, match=r"spaCy model no_such cannot be loaded .*python -m spacy download no_such"
        ):
            entity_finder("spacy:no_such")

    def test_a_model_without_entities(self, spacy, tmp_path):
        spacy.blank("en").to_disk(tmp_path)
        with pytest.raises(
            ModelError, match="finds no entities, as it has no component ner; its components: none"
        ):
            entity_finder(f"spacy:{tmp_path}")


def test_without_spacy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtra, match=r"pip install 'pairsmith\[spacy\]'"):
        entity_finder("spacy:en_core_web_sm")


def test_names_and_numbers_end_where_a_script_without_spaces_goes_on():
    text = "大阪で2024年に新しい水族館が開館した。Jinbei Sharkが人気だ。"
    assert [(entity.text, entity.start) for entity in find_entities(text)] == [
        ("2024", 3),
        ("Jinbei Shark", 21),
    ]
