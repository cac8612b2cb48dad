"""What every test shares: no network, one thread, and two random models small enough to make on the spot."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Ray's workers give way to everything else by default, to other tests too, for which they then wait.
os.environ.setdefault("RAY_worker_niceness", "0")
# Threads that wait for each other by spinning take the core from the one that they wait for.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import gc
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("shared machines", deadline=None)
settings.load_profile("shared machines")


def pytest_collection_finish() -> None:
    """Leave the libraries, some million objects, out of every later search for garbage: a tenth of the time."""
    gc.collect()
    gc.freeze()


GPT2_VOCABULARY = 300
_TEXTS = (
    'Task: Write two sentences that mean the same thing.\nSentence 1: "A man is playing."\nSentence 2: "',
    "A woman is slicing an onion. Two dogs run on the beach. The stock market fell again today.",
    "Someone is talking about a child who rides a horse; the weather was not good, they said.",
)


def _is_here(address: str) -> bool:
    """Whether an address is one of this machine's own: only those can be bound to."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sockets reach this machine only; anything else fails the test that tried."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if not (self.family == socket.AF_UNIX or address[0] in {"localhost", "::1"} or _is_here(address[0])):
            raise AssertionError(f"a test tried to reach {address!r}; tests run without a network")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Keep torch to one thread: the same sums everywhere, and no fight over cores."""
    import torch

    torch.set_num_threads(1)


def _byte_level_tokenizer() -> Any:
    """A byte-level BPE of 300 tokens: every text encodes, quotation marks and newlines too."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=GPT2_VOCABULARY,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXTS, trainer)
    return tokenizer


def make_gpt2(folder: Path, seed: int = 0) -> Path:
    """Save a random GPT-2 (2 layers of 16, 300 tokens, context 128, no padding token) in ``folder``."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    end = "<|endoftext|>"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_byte_level_tokenizer(),
        bos_token=end,
        eos_token=end,
        unk_token=end,
        model_max_length=128,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=128,
            n_embd=16,
            n_layer=2,
            n_head=2,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        model = GPT2LMHeadModel(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_llama(folder: Path, seed: int = 0, *, starts: bool = False, **config: float) -> Path:
    """Save a random Llama (2 layers of 32, 301 tokens, context 256, no padding token) in ``folder``.

    Its tokenizer adds no special tokens or, if it ``starts`` texts, the start token before a text or a pair;
    ``config`` goes to LlamaConfig.
    """
    import torch
    from tokenizers import processors
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    pieces = _byte_level_tokenizer()
    pieces.add_special_tokens(["<s>"])
    if starts:
        pieces.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B:1", special_tokens=[("<s>", GPT2_VOCABULARY)]
        )
    sizes: dict[str, Any] = {
        "vocab_size": GPT2_VOCABULARY + 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "bos_token_id": GPT2_VOCABULARY,
        "eos_token_id": 0,
        "initializer_range": 0.1,
    }
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=pieces, bos_token="<s>", eos_token="<|endoftext|>", model_max_length=256
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**(sizes | config)))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def word_pieces(words: Iterable[str]) -> list[str]:
    """Letters, and the first and the further five letters of words: longer words are of several pieces.

    Not a trained vocabulary, as that of tokenizers' trainer differs from process to process.
    """
    pieces = set()
    for word in words:
        pieces |= {word[:5], word[0]} | {f"##{letter}" for letter in word[1:]}
        pieces |= {f"##{word[start : start + 5]}" for start in range(5, len(word), 5)}
    return sorted(pieces)


def make_bert(folder: Path, seed: int = 0, **config: float) -> Path:
    """Save a random BERT (2 layers of 16, word pieces, context 64) in ``folder``; ``config`` goes to BertConfig."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words = [word for text in _TEXTS for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]
    vocabulary = dict.fromkeys([*special, *word_pieces(words)])
    pieces = Tokenizer(
        models.WordPiece({piece: place for place, piece in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    pieces.normalizer, pieces.pre_tokenizer = normalizer, splitter
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", pieces.token_to_id("[CLS]")), ("[SEP]", pieces.token_to_id("[SEP]"))],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        settings = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
            pad_token_id=tokenizer.pad_token_id,
            **config,
        )
        model = BertModel(settings)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random GPT-2 with a byte-level BPE and no padding token."""
    return make_gpt2(tmp_path_factory.mktemp("tiny") / "gpt2")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Llama with a byte-level BPE that adds no special tokens."""
    return make_llama(tmp_path_factory.mktemp("tiny") / "llama")


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random BERT with a word-piece tokenizer."""
    return make_bert(tmp_path_factory.mktemp("tiny") / "bert")


@pytest.fixture(scope="session")
def silent_model(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a DistilBERT without weights, a kind of model that transformers lets write nothing."""
    from transformers import AutoTokenizer, DistilBertConfig

    folder = tmp_path_factory.mktemp("tiny") / "distilbert"
    DistilBertConfig().save_pretrained(folder)
    (folder / "model.safetensors").touch()
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def quick_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random BERT that learns a few rows by heart in a hundred steps.

    The usual one does not: its first weights are so small that it takes long to attend to anything.
    """
    folder = tmp_path_factory.mktemp("tiny") / "quick"
    return make_bert(folder, initializer_range=0.2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.fixture(scope="session")
def bundled() -> Any:
    """The bundled language model."""
    from pairsmith.core.bundled import TINY
    from pairsmith.models.language.loading import load_model

    return load_model(TINY, device="cpu")


@pytest.fixture
def server(bundled: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bundled model behind a completions server that gives long lists; nobody waits between tries."""
    from tests.server import serving

    monkeypatch.setattr("pairsmith.models.language.remote.WAIT", 0.0)
    with serving(bundled) as server:
        server.most = 100
        yield server


@pytest.fixture
def connect(server: Any) -> Any:
    """Connects to the server, with the options of a ``RemoteModel``."""
    from pairsmith.models.language.remote import RemoteModel

    models: list[RemoteModel] = []

    def connected(**options: Any) -> RemoteModel:
        models.append(RemoteModel(server.name, **options))
        return models[-1]

    yield connected
    for model in models:
        model.close()
