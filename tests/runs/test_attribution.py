"""Licences and citations of models and data, through every step that is made of another."""

import json

import pytest
from huggingface_hub import DatasetCard, constants
from tests.runs.test_croissant import dataset_folder, scored
from tests.steps.mix.test_mix import lines

from pairsmith.core.progress import Silent
from pairsmith.data.schemas import LABELLED_TEXT, SCORED_PAIR
from pairsmith.data.squad import QUESTION
from pairsmith.runs import Card, Run, model_display_name, sources_of, synthetic_tag, written_by_model
from pairsmith.runs.attribution import Sources
from pairsmith.runs.provenance import Attribution, hub_licence, joint_languages, joint_licences
from pairsmith.steps.generate.postprocess import postprocess
from pairsmith.steps.generate.settings import PostprocessSettings
from pairsmith.steps.mix.route import mix, mixed_source_names
from pairsmith.steps.mix.settings import MixSettings

BIBTEX = "@article{x,\n  title = {A {T}itle},\n  year = 2020\n}"


def card(folder, metadata, text=""):
    folder.mkdir(exist_ok=True)
    (folder / "README.md").write_text(f"---\n{metadata}---\n\n# Title\n\n{text}\n")
    return str(folder)


def credit(name, *licences, role="data", **more):
    return Attribution(name=name, role=role, licences=licences, **more)


def data_of(folder):
    """The card's metadata as the Hub's own library reads it."""
    return DatasetCard.load(folder.path / "README.md").data.to_dict()


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("/home/anna/corpora/news.txt", "news.txt"),
        ("runs/pairs/", "pairs"),
        ("~/models/mine", "mine"),
        ("s3://bucket/deep/pairs", "pairs"),
        ("C:\\Users\\anna\\pairs.tsv", "pairs.tsv"),
        ("https://anna:secret@host/v1#llama", "llama"),
        ("https://host/rows.jsonl?token=abc", "rows.jsonl"),
        ("openai-community/gpt2-xl", "openai-community/gpt2-xl"),
        ("pairsmith:tiny", "pairsmith:tiny"),
        ("org/data:test", "org/data:test"),
        ("org/name:tiny.Q4_1.gguf", "org/name:tiny.Q4_1.gguf"),
        ("/home/anna/models/tiny.Q4_1.gguf", "tiny.Q4_1.gguf"),
        ("models/tiny.Q4_1.gguf", "tiny.Q4_1.gguf"),
    ],
)
def test_what_a_card_calls_a_source(name, short):
    assert model_display_name(name) == short


def test_a_folder_with_a_card(tmp_path):
    folder = card(
        tmp_path / "m", "license: MIT\nlanguage: [en]\n", f"## Citation\n\n```bibtex\n{BIBTEX}\n```"
    )
    (source,) = sources_of(models=[folder]).credits
    assert (source.name, source.licences, source.languages) == ("m", ("mit",), ("en",))
    assert source.citations == ("@article{x, title = {A {T}itle}, year = 2020 }",)


@pytest.mark.parametrize(
    ("metadata", "licences"),
    [
        ("license: [mit, cc-by-4.0]\n", ("mit", "cc-by-4.0")),
        ("license: other\nlicense_name: my-terms\n", ("my-terms",)),
        ("license: unknown\n", ()),
        ("tags: [a]\n", ()),
        ("license: [\n", ()),
        ("- a\n", ()),
    ],
)
def test_licences_as_the_hub_writes_them(tmp_path, metadata, licences):
    (source,) = sources_of(data=[card(tmp_path / "d", metadata)]).credits
    assert source.licences == licences
    assert bool(source.look) == (not licences)


@pytest.mark.parametrize("file", ["rows.jsonl", "data/rows.jsonl"])
def test_a_file_has_the_licence_and_citations_of_the_card_beside_it(tmp_path, file):
    folder = card(tmp_path / "m", "license: CC-BY-4.0\nlanguage: en\n", f"```bibtex\n{BIBTEX}\n```")
    path = tmp_path / "m" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"text": "a"}\n')
    for name in (str(path), path):
        (source,) = sources_of(data=[name]).credits
        assert (source.name, source.licences, source.languages) == ("rows.jsonl", ("cc-by-4.0",), ("en",))
        assert source.citations == ("@article{x, title = {A {T}itle}, year = 2020 }",)
    assert sources_of(data=[folder]).credits[0].name == "m"


def test_a_readme_without_licence_and_language_is_no_card_of_the_files_beside_it(tmp_path):
    card(tmp_path / "m", "tags: [a]\n", "# Citing this program\n\n- A program (2020)\n")
    (tmp_path / "m" / "texts.txt").write_text("a\n")
    (source,) = sources_of(data=[str(tmp_path / "m" / "texts.txt")]).credits
    assert (source.licences, source.citations) == ((), ())
    assert source.look == "the place where it is from; the file does not say"


def test_a_file_of_a_dataset_folder_has_the_sources_of_the_folder(tmp_path):
    written = Sources((credit("seeds.txt", "cc0-1.0"),))
    folder = dataset_folder(tmp_path / "a", SCORED_PAIR, scored, card=Card("A", "d", sources=written))
    file = next((folder.path / "data").iterdir())
    assert sources_of(data=[file]).credits == written.credits


def test_works_listed_under_a_heading(tmp_path):
    folder = card(
        tmp_path / "d", "license: mit\n", "- not this\n\n## How to cite\n\n- One (2020)\n\n## Else\n\n- x"
    )
    assert sources_of(data=[folder]).citations == ("One (2020)",)


def test_a_hub_id_with_a_card_in_the_cache_and_one_without(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repo = tmp_path / "datasets--org--data"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("abc")
    (repo / "snapshots").mkdir()
    card(repo / "snapshots" / "abc", "license: cc-by-4.0\n")
    known, unknown = sources_of(models=["org/model"], data=["org/data:test"]).credits[::-1]
    assert (known.hub, known.licences) == ("org/data", ("cc-by-4.0",))
    assert (unknown.hub, unknown.licences, unknown.look) == (
        "org/model",
        (),
        "https://huggingface.co/org/model",
    )


def test_the_embedded_language_model_is_credited_with_its_own_paper():
    sources = sources_of(models=["embedded:smollm2-135m-instruct"])
    assert [(source.name, source.licences) for source in sources.credits] == [
        ("embedded:smollm2-135m-instruct", ("apache-2.0",))
    ]
    (paper,) = sources.citations
    assert "SmolLM2: When Smol Goes Big" in paper
    assert "arXiv:2502.02737" in paper
    (other,) = sources_of(models=["embedded:all-minilm-l6-v2"]).citations
    assert "Sentence-BERT" in other


def test_a_gguf_file_on_the_hub_is_credited_as_its_repository(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    (source,) = sources_of(models=["org/name:tiny.Q4_1.gguf"]).credits
    assert (source.name, source.hub, source.licences) == ("org/name", "org/name", ())
    assert source.look == "https://huggingface.co/org/name"
    repo = tmp_path / "models--org--name"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("abc")
    (repo / "snapshots").mkdir()
    card(repo / "snapshots" / "abc", "license: mit\n")
    (source,) = sources_of(models=["org/name:tiny.Q4_1.gguf"]).credits
    assert (source.hub, source.licences, source.look) == ("org/name", ("mit",), "")


@pytest.mark.parametrize("exists", [True, False])
def test_a_gguf_file_is_credited_by_its_name_also_when_it_is_gone(tmp_path, monkeypatch, exists):
    monkeypatch.chdir(tmp_path)
    if exists:
        (tmp_path / "tiny.gguf").touch()
    (source,) = sources_of(models=["tiny.gguf"]).credits
    assert (source.name, source.hub, source.licences) == ("tiny.gguf", "", ())
    assert source.look.startswith("the place where it is from")


def test_what_the_hub_is_told_of_several():
    one, two, none = credit("a", "mit"), credit("b", "cc-by-4.0"), credit("c")
    assert joint_licences([one, two]) == ("mit", "cc-by-4.0")
    assert hub_licence([one, one]) == {"license": "mit"}
    assert hub_licence([one, two]) == {"license": "other", "license_name": "several-see-below"}
    assert hub_licence([one, none]) == {"license": "unknown"}
    assert hub_licence([credit("a", "my-terms")]) == {"license": "other", "license_name": "my-terms"}
    assert hub_licence([]) == {}


def test_a_language_is_told_only_where_all_data_have_it():
    german, unknown = credit("a", languages=("de",)), credit("b")
    model = credit("m", role="model", languages=("en",))
    assert joint_languages([german, model]) == ("de",)
    assert joint_languages([german, unknown]) == ()
    assert joint_languages([]) == ()


def test_a_mixture_names_what_its_sources_were_made_with(tmp_path):
    written = Sources((credit("gpt2", "mit", role="model"), credit("seeds.txt", "mit")), ("GPT (2019)",))
    dataset_folder(
        tmp_path / "a", SCORED_PAIR, scored, card=Card("A", "d", citations=["DINO"], sources=written)
    )
    other = {"sentence1": "p", "sentence2": "q", "score": 1.0}
    plain = lines(tmp_path / "b.jsonl", [other])
    rows = [{**other, "sentence1": f"{n} p", "sentence2": f"q {n}", "score": float(n % 2)} for n in range(40)]
    folder = dataset_folder(
        tmp_path / "c", SCORED_PAIR, lambda n: {"id": str(n), **rows[n]}, card=Card("C", "d", sources=written)
    )
    both = mix(MixSettings(data=[plain, str(folder.path)]), Run(tmp_path / "out", Silent()))
    text = (both.path / "README.md").read_text()
    assert "| gpt2 | model | mit |" in text
    assert "| b.jsonl | data | unknown: look at the place where it is from; the file does" in text
    assert "- GPT (2019)" in text
    assert data_of(both)["license"] == "unknown"
    assert str(tmp_path) not in text.split("## How it was made")[0]
    again = postprocess(PostprocessSettings(data=str(folder.path)), Run(tmp_path / "clean", Silent()))
    assert again.manifest.about.credits == written.credits
    assert data_of(again)["license"] == "mit"
    assert "GPT (2019)" in again.manifest.about.citations


def test_a_licence_that_the_maker_gave_by_hand_goes_on(tmp_path):
    written = Sources((credit("seeds.txt"),))
    folder = dataset_folder(tmp_path / "a", SCORED_PAIR, scored, card=Card("A", "d", sources=written))
    readme = folder.path / "README.md"
    readme.write_text(readme.read_text().replace("license: unknown", "license: cc0-1.0"))
    own, seeds = sources_of(data=[folder.path]).credits
    assert (own.name, own.licences, seeds.name) == ("a", ("cc0-1.0",), "seeds.txt")


def test_sources_of_one_name_are_told_apart():
    assert mixed_source_names(["/x/a.txt", "/y/a.txt", "/y/b.txt"]) == {
        "/x/a.txt": "a.txt",
        "/y/a.txt": "a.txt (2)",
        "/y/b.txt": "b.txt",
    }


def test_a_broken_record_stops_nothing(tmp_path):
    folder = card(tmp_path / "d", "license: mit\n")
    for record in ("{", "[1]", json.dumps({"about": {"credits": 3}})):
        (tmp_path / "d" / "manifest.json").write_text(record)
        assert [source.licences for source in sources_of(data=[folder]).credits] == [("mit",)]


@pytest.mark.parametrize(
    ("schema", "row", "task"),
    [
        (SCORED_PAIR, scored, "sentence-similarity"),
        (LABELLED_TEXT, lambda n: {"id": str(n), "text": "t", "label": "l"}, "text-classification"),
        (
            QUESTION,
            lambda n: {
                "id": "",
                "title": "",
                "context": "",
                "question": "",
                "answers": {"text": [], "answer_start": []},
            },
            "question-answering",
        ),
    ],
)
def test_the_hubs_own_library_reads_the_card(tmp_path, schema, row, task):
    hub = (credit("org/a", "mit", hub="org/a", languages=("en",)),)
    metadata = data_of(
        dataset_folder(tmp_path / "in", schema, row, card=Card("C", "d", sources=Sources(hub)))
    )
    assert metadata["task_categories"] == [task]
    assert (metadata["license"], metadata["language"], metadata["source_datasets"]) == (
        "mit",
        ["en"],
        ["org/a"],
    )


@pytest.mark.parametrize(
    ("tags", "models", "expected"),
    [
        ("tags: [pairsmith, hard-negatives]\n", {"encoder": "sha256:0"}, False),
        ("tags: [pairsmith, synthetic]\n", {}, True),
        ("tags: [my-own]\n", {"model": "sha256:0"}, True),
        ("tags: [my-own]\n", {}, False),
        ("tags: [synthetic]\n", {}, True),
    ],
)
def test_the_card_says_whether_a_model_wrote_texts(tmp_path, tags, models, expected):
    folder = card(tmp_path / "d", tags)
    (tmp_path / "d" / "manifest.json").write_text(json.dumps({"step": "negatives", "models": models}))
    assert written_by_model(folder) is expected
    assert synthetic_tag(str(tmp_path), folder) == (("synthetic",) if expected else ())
