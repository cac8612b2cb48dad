"""The documents that ``pairsmith:tiny`` learns from.

Plain text, and sentence pairs written out in the instruction formats of the built-in tasks. Three
kinds of pair are made, and each is noisy on purpose, as a large model's understanding of an
instruction is:

* label 1: two captions of one image, two wordings of one question, or a sentence after light edits;
* label 0.5: the first half or so of a sentence, continued by the end of another; neutral NLI pairs;
* label 0: two sentences taken at random.

The half-and-half pairs keep the *start* of the first sentence on purpose. Self-debiasing lowers
every token that the instruction for label 1 makes more likely, so label 0.5 keeps only what it
copies with at least label 1's confidence: a start that is always copied survives, words copied
here and there do not.
"""

import gzip
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pairsmith.tasks import load_task

X1 = "<X1>"
MAX_WORDS = 32
SCRIPTS = Path(__file__).parent


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


class Sources:
    """The raw material, read once from the data folder."""

    def __init__(self, data: Path) -> None:
        self.captions = [
            [sentence(caption) for caption in line.split("\t")]
            for line in open_text(data / "multi30k/task2/train.5captions.tsv.gz")
        ]
        flickr = defaultdict(list)
        for line in open_text(data / "flickr8k/Flickr8k.token.txt.gz"):
            image, caption = line.split("\t")
            flickr[image.split("#")[0]].append(sentence(detokenise(caption)))
        self.captions += list(flickr.values())
        self.captions = [kept for group in self.captions if len(kept := [c for c in group if fits(c)]) > 1]

        rows = (line.split("\t") for line in open_text(data / "qqp-duplicates/train.tsv.gz"))
        self.questions = [(clean(a), clean(b)) for a, b, *_ in rows if fits(clean(a)) and fits(clean(b))]

        self.nli: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for name in ("snli-dev", "snli-test", "mnli-dev-matched"):
            for line in open_text(data / f"nli/{name}.jsonl.gz"):
                row = json.loads(line)
                pair = sentence(row["premise"]), sentence(row["hypothesis"])
                if all(map(fits, pair)):
                    self.nli[row["label"]].append(pair)

        self.articles = [article for article in self._articles(data) if article]
        self.news = [s for article in self.articles for s in article if fits(s) and s[-1] in ".?!"]
        self.headlines = defaultdict(list)
        for line in open_text(data / "bbc-news/bbc_news.jsonl.gz"):
            row = json.loads(line)
            self.headlines[row["category"]].append(clean(row["title"]))
        self.everyday = [
            s for line in open_text(data / "text-tatoeba/eng_sentences.txt.gz") if fits(s := clean(line))
        ]
        self.reviews = self._reviews(data)

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


class Pairs:
    """Makes sentence pairs of each kind from the sources."""

    def __init__(self, sources: Sources, rng: random.Random) -> None:
        self.sources = sources
        self.rng = rng
        self.synonyms = self._read_synonyms()
        self.tails: dict[str, list[str]] = defaultdict(list)
        for text in self._many_sentences():
            words = text.split()
            for position in range(2, len(words) - 1):
                if len(bucket := self.tails[words[position - 1].lower()]) < 400 or rng.random() < 0.01:
                    bucket.append(" ".join(words[position:]))

    @staticmethod
    def _read_synonyms() -> dict[tuple[str, ...], list[str]]:
        table: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for line in open_text(SCRIPTS / "tiny_synonyms.txt"):
            if line and not line.startswith("#"):
                group = line.split("|")
                for phrase in group:
                    table[tuple(phrase.lower().split())] += [other for other in group if other != phrase]
        return table

    def _many_sentences(self) -> list[str]:
        captions = [self.rng.choice(group) for group in self.sources.captions]
        texts = captions + self.sources.news + self.sources.everyday
        self.rng.shuffle(texts)
        return texts[:90_000]

    def any_sentence(self) -> str:
        """A sentence of any source."""
        draw = self.rng.random()
        if draw < 0.35:
            return self.rng.choice(self.rng.choice(self.sources.captions))
        if draw < 0.75:
            return self.rng.choice(self.sources.news)
        if draw < 0.92:
            return self.rng.choice(self.sources.everyday)
        return self.rng.choice(self.rng.choice(self.sources.questions))

    def same(self) -> tuple[str, str]:
        """Two texts that mean about the same."""
        draw = self.rng.random()
        if draw < 0.18:
            first, second = self.rng.sample(self.rng.choice(self.sources.captions), 2)
            return first, second
        if draw < 0.28:
            return self.rng.choice(self.sources.questions)
        if draw < 0.32:
            return self.rng.choice(self.sources.nli["entailment"])
        first = self.any_sentence()
        for _ in range(4):
            second = self.edit(first)
            if second != first:
                break
        return first, second

    def similar(self) -> tuple[str, str]:
        """Two texts that share a part."""
        draw = self.rng.random()
        if draw < 0.06:
            return self.rng.choice(self.sources.nli["neutral"])
        if draw < 0.10:
            return self.same()
        first = self.any_sentence()
        return first, self.blend(first)

    def unrelated(self) -> tuple[str, str]:
        """Two texts that have nothing to do with each other; one in eight does, as noise."""
        draw = self.rng.random()
        if draw < 0.08:
            return self.similar()
        if draw < 0.12:
            article = self.rng.choice(self.sources.articles)
            texts = [s for s in article if fits(s)]
            if len(texts) > 1:
                return texts[0], texts[1]
        return self.any_sentence(), self.any_sentence()

    def blend(self, text: str) -> str:
        """The first half or so of ``text``, continued by the end of another sentence."""
        words = text.split()
        for _ in range(8):
            kept = round(len(words) * self.rng.uniform(0.45, 0.75))
            kept = min(max(kept, 2), len(words) - 1)
            tails = self.tails.get(words[kept - 1].lower())
            if not tails:
                continue
            tail = self.rng.choice(tails).split()
            if tail != words[kept:] and len(tail) <= len(words) - kept + 4:
                return " ".join(words[:kept] + tail)
        return " ".join(words[: max(2, len(words) // 2)] + self.any_sentence().split()[-4:])

    def edit(self, text: str) -> str:
        """``text`` with words replaced, left out, added or moved; its meaning stays about the same."""
        words = self._move(text.split())
        out: list[str] = []
        position = 0
        while position < len(words):
            length, phrase = self._synonym(words, position)
            if phrase is not None and self.rng.random() < 0.55:
                out += phrase.split()
                position += length
                continue
            word = words[position]
            plain = word.lower().strip(".,;:?!")
            draw = self.rng.random()
            if plain in {"the", "a", "an"} and word != words[-1]:
                if draw < 0.25:
                    word = {"the": "a", "a": "the", "an": "the"}[plain]
                elif draw < 0.33:
                    word = ""
            elif plain in {"very", "just", "really", "also", "still", "now", "then", "however", "already"}:
                word = "" if draw < 0.5 else word
            elif plain.endswith("ly") and len(plain) > 5 and draw < 0.3:
                word = ""
            elif draw < 0.04:
                word = f"{self.rng.choice(['really', 'now', 'also', 'just', 'still'])} {word}"
            elif draw < 0.07 and len(plain) < 4 and position < len(words) - 1:
                word = ""
            if word:
                out.append(word)
            position += 1
        result = " ".join(out)
        return result[:1].upper() + result[1:] if result else text

    def _synonym(self, words: Sequence[str], position: int) -> tuple[int, str | None]:
        for length in (3, 2, 1):
            window = words[position : position + length]
            if len(window) < length:
                continue
            body = " ".join(window)
            mark = body[-1] if body[-1] in ".,;:?!" else ""
            options = self.synonyms.get(tuple(body.lower().rstrip(".,;:?!").split()))
            if options:
                return length, self.rng.choice(options) + mark
        return 1, None

    def _move(self, words: list[str]) -> list[str]:
        """Sometimes move the last phrase to the front: "X in the park." becomes "In the park, X."."""
        starts = {"in", "on", "at", "after", "while", "during", "because", "when", "by", "near", "with", "as"}
        cuts = [i for i in range(3, len(words) - 1) if words[i].lower() in starts]
        if not cuts or self.rng.random() > 0.18 or words[-1][-1] not in ".!":
            return words
        cut = cuts[-1]
        mark = words[-1][-1]
        moved = [*words[cut:-1], words[-1][:-1] + ","]
        head = [
            words[0].lower() if words[0] in {"A", "An", "The", "Two", "It", "He", "She", "They"} else words[0]
        ]
        return [
            moved[0].capitalize(),
            *moved[1:],
            *head,
            *words[1 : cut - 1],
            words[cut - 1].rstrip(",") + mark,
        ]


def write_out(instruction: str, x1: str | None, x2: str) -> str:
    """A task's instruction filled in, with its answer and the closing quotation mark."""
    prompt = instruction if x1 is None else instruction.replace(X1, x1)
    return f'{prompt}{x2}"'


def documents(data: Path, count: int, seed: int) -> Iterator[str]:
    """``count`` training documents, the same for the same ``seed``."""
    rng = random.Random(seed)
    sources = Sources(data)
    pairs = Pairs(sources, rng)
    sts, nli, paraphrase = load_task("sts"), load_task("nli"), load_task("paraphrase")
    movies, topic = load_task("movie-reviews"), load_task("topic")
    sts_pairs: dict[str, Callable[[], tuple[str, str]]] = {
        "1": pairs.same,
        "0.5": pairs.similar,
        "0": pairs.unrelated,
    }

    def passage() -> str:
        article = rng.choice(sources.articles)
        start = rng.randrange(len(article))
        return " ".join(" ".join(article[start : start + 12]).split()[:130])

    def sts_document() -> str:
        label = rng.choice(["1", "0.5", "0"])
        return write_out(sts.instruction(label), *sts_pairs[label]())

    def other_document() -> str:
        draw = rng.random()
        if draw < 0.35:
            label = rng.choice(nli.label_names)
            return write_out(nli.instruction(label), *rng.choice(sources.nli[label]))
        if draw < 0.6:
            label = rng.choice(paraphrase.label_names)
            pair = pairs.same() if label == "paraphrase" else pairs.similar()
            return write_out(paraphrase.instruction(label), *pair)
        if draw < 0.85:
            label = rng.choice(movies.label_names)
            return write_out(movies.instruction(label), None, rng.choice(sources.reviews[label]))
        label = rng.choice(topic.label_names)
        return write_out(topic.instruction(label), None, rng.choice(sources.headlines[label]))

    for _ in range(count):
        draw = rng.random()
        yield sts_document() if draw < 0.74 else other_document() if draw < 0.86 else passage()
