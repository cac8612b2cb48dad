"""An encoder that looks words up, and texts made of these words."""

import json
import random

import numpy as np
import pytest

from pairsmith.steps.negatives.settings import NegativesSettings

WORDS = [f"{a}{b}" for a in ("ba", "de", "fi", "go", "hu", "ka") for b in ("l", "m", "n", "r", "s", "t", "x")]


@pytest.fixture(scope="session")
def words_encoder(tmp_path_factory):
    """Folder of an encoder whose vector of a text is the mean of its words' random vectors."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    folder = tmp_path_factory.mktemp("words") / "encoder"
    tokenizer = Tokenizer(
        models.WordLevel({w: i for i, w in enumerate(["[UNK]", *WORDS])}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    weights = np.random.default_rng(1).standard_normal((len(WORDS) + 1, 16)).astype(np.float32)
    weights[0] = 0  # a text of unknown words has no direction
    module = StaticEmbedding(tokenizer, embedding_weights=weights)
    SentenceTransformer(modules=[module], device="cpu").save(str(folder))
    return folder


def texts(count, seed, words=6):
    draw = random.Random(seed)
    return list(dict.fromkeys(" ".join(draw.choices(WORDS, k=words)) for _ in range(count)))


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def world(tmp_path, words_encoder):
    """A folder with pairs and a corpus, and settings for it.

    40 texts and 12 queries, each of four words of its positive; five have a second positive, of any words.
    """
    corpus, draw = texts(40, 1), random.Random(2)
    queries = [" ".join(draw.sample(corpus[3 * i].split(), 4)) for i in range(12)]
    pairs = [{"query": query, "positive": corpus[3 * i]} for i, query in enumerate(queries)]
    pairs += [{"query": query, "positive": corpus[3 * i + 1]} for i, query in enumerate(queries[:5])]
    lines(tmp_path / "pairs.jsonl", pairs)
    lines(tmp_path / "corpus.jsonl", [{"text": text} for text in corpus])

    def settings(**changes):
        given = {
            "pairs": str(tmp_path / "pairs.jsonl"), "corpus": str(tmp_path / "corpus.jsonl"),
            "encoder": str(words_encoder), "negatives": 3, "last_rank": 10, "positive_share": 0,
            "dtype": "float32", "shard_size": 7, "search_rows": 5,
        }  # fmt: skip
        return NegativesSettings(**{**given, **changes})

    return tmp_path, settings, pairs, corpus
