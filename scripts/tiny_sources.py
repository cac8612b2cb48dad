"""The raw texts that ``pairsmith:tiny`` learns from, cleaned.

No sentence of the similarity sets that encoders are measured on (STSb, SICK, STS12-16) gets in, nor
any other caption of an image that has one there; case and punctuation do not count.
"""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

MAX_WORDS = 32


def open_text(path: Path) -> Iterator[str]:
    """Lines of a text file, gzipped or not, without their line ends."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        for line in file:
            yield line.rstrip("\n")


def detokenise(text: str) -> str:
    """Put the spaces of ordinary print back into text split by a tokenizer."""
    text = text.replace("``", "'").replace("''", "'").replace("-LRB-", "(").replace("-RRB-", ")")
    text = re.sub(r"\s+([.,;:!?%)])", r"\1", text)
    text = re.sub(r"\s+('s|n't|'re|'ve|'ll|'d|'m)\b", r"\1", text)
    text = re.sub(r"([;!?])(\s*\1)+", r"\1", text)
    return re.sub(r"([($])\s+", r"\1", text).strip()


def clean(text: str) -> str:
    """One line, single spaces, no straight double quotation mark (it ends a text in the prompts)."""
    return " ".join(text.replace('"', "'").split())


def sentence(text: str) -> str:
    """A cleaned sentence that starts with a capital and ends with a mark."""
    text = clean(text)
    if text and text[-1] not in ".?!":
        text += "."
    return text[:1].upper() + text[1:]


def fits(text: str) -> bool:
    """Whether a text is a sentence of 4 to ``MAX_WORDS`` words and mostly letters."""
    words = text.split()
    return 4 <= len(words) <= MAX_WORDS and sum(c.isalpha() or c == " " for c in text) >= 0.85 * len(text)


def split_sentences(text: str) -> list[str]:
    """Cut running text at sentence ends (a rough rule is enough for training text)."""
    return [clean(part) for part in re.split(r"(?<=[.!?])\s+(?=[A-Z'])", text) if part.strip()]


def fold(text: str) -> str:
    """Letters and digits only, lower case, single spaces."""
    return " ".join(re.findall(r"\w+", text.lower()))


def measured_texts(data: Path) -> set[str]:
    """The sentences of all similarity sets, every part of them, folded.

    Every tab-separated field counts, whatever the format's columns are.
    """
    files = [path for name in ("stsb", "sick", "sts12-16") for path in (data / name).rglob("*.*sv")]
    files += (data / "sick").glob("SICK_*.txt")
    files += (data / "sts12-16").rglob("*.tsv.gz")
    fields = (field for path in files for line in open_text(path) for field in line.split("\t"))
    return {folded for field in fields if len((folded := fold(field)).split()) >= 3}


class Sources:
    """The raw material, read once from the data folder."""

    def __init__(self, data: Path) -> None:
        self.measured = measured_texts(data)
        self.captions = [
            [sentence(caption) for caption in line.split("\t")]
            for line in open_text(data / "multi30k/task2/train.5captions.tsv.gz")
        ]
        flickr = defaultdict(list)
        for line in open_text(data / "flickr8k/Flickr8k.token.txt.gz"):
            image, caption = line.split("\t")
            flickr[image.split("#")[0]].append(sentence(detokenise(caption)))
        self.captions += list(flickr.values())
        self.captions = [group for group in self.captions if all(map(self.unmeasured, group))]
        self.captions = [kept for group in self.captions if len(kept := [c for c in group if fits(c)]) > 1]

        rows = (line.split("\t") for line in open_text(data / "qqp-duplicates/train.tsv.gz"))
        questions = ((clean(a), clean(b)) for a, b, *_ in rows)
        self.questions = [pair for pair in questions if all(map(self.usable, pair))]

        self.nli: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for name in ("snli-dev", "snli-test", "mnli-dev-matched"):
            for line in open_text(data / f"nli/{name}.jsonl.gz"):
                row = json.loads(line)
                pair = sentence(row["premise"]), sentence(row["hypothesis"])
                if all(map(self.usable, pair)):
                    self.nli[row["label"]].append(pair)

        articles = ([s for s in article if self.unmeasured(s)] for article in self._articles(data))
        self.articles = [article for article in articles if article]
        self.news = [s for article in self.articles for s in article if fits(s) and s[-1] in ".?!"]
        self.headlines = defaultdict(list)
        for line in open_text(data / "bbc-news/bbc_news.jsonl.gz"):
            row = json.loads(line)
            self.headlines[row["category"]].append(clean(row["title"]))
        self.everyday = [
            s
            for line in open_text(data / "text-tatoeba/eng_sentences.txt.gz")
            if self.usable(s := clean(line))
        ]
        self.reviews = self._reviews(data)

    def unmeasured(self, text: str) -> bool:
        """Whether no similarity set holds this sentence."""
        return fold(text) not in self.measured

    def usable(self, text: str) -> bool:
        """Whether a text is a sentence of fit length that no similarity set holds."""
        return fits(text) and self.unmeasured(text)

    @staticmethod
    def _articles(data: Path) -> Iterator[list[str]]:
        for line in open_text(data / "bbc-news/bbc_news.jsonl.gz"):
            yield [s for paragraph in json.loads(line)["paragraphs"] for s in split_sentences(paragraph)]
        for line in open_text(data / "xsum/xsum_test_sample_1000.jsonl.gz"):
            row = json.loads(line)
            text = f"{row['summary']} {row['document']}".replace("Â£", "£")
            yield split_sentences(text)
        for name in ("science", "rural"):
            block: list[str] = []
            for line in open_text(data / f"text-abc/{name}.txt.gz"):
                block += split_sentences(line)
                if len(block) > 12:
                    yield block
                    block = []
        for line in open_text(data / "text-pratham-stories/stories_en.jsonl"):
            yield split_sentences(json.loads(line)["text"])
        block = []
        for line in open_text(data / "text-brown/brown_sentences.tsv.gz"):
            block.append(sentence(detokenise(line.split("\t")[2])))
            if len(block) > 12:
                yield block
                block = []

    @staticmethod
    def _reviews(data: Path) -> dict[str, list[str]]:
        reviews: dict[str, list[str]] = {"good": [], "bad": []}
        for label, name in (("good", "pos"), ("bad", "neg")):
            for line in open_text(data / f"mr/rt-polarity.{name}.txt"):
                reviews[label].append(sentence(detokenise(line)))
        for line in open_text(data / "imdb-polarity-v2/movie_reviews.jsonl.gz"):
            row = json.loads(line)
            parts = split_sentences(
                detokenise(row["text"].replace("\n", " ").replace(" . ", " . @ ")).replace("@ ", "")
            )
            text = " ".join(" ".join(parts).split()[-60:])
            reviews["good" if row["label"] == "pos" else "bad"].append(sentence(text))
        return reviews
