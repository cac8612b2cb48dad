"""A random BART small enough to make on the spot, and documents with summaries that it can learn by heart."""

import json

from safetensors.torch import load_file

PLAYERS = ("Ann", "Bob", "Cid", "Dora", "Eve", "Finn", "Gus", "Hal")
PLAYED = ("guitar", "drum", "flute", "harp", "horn", "lute", "bell", "pipe")


def document(number):
    return f"A {PLAYED[number]} was heard in the town. It was {PLAYERS[number]} again. People came to see."


def summary(number):
    return f"{PLAYERS[number]} played the {PLAYED[number]} and people came."


def write_documents(path, numbers, **columns):
    names = {"document": "document", "summary": "summary"} | columns
    rows = [{names["document"]: document(n), names["summary"]: summary(n)} for n in numbers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def bart_tokenizer():
    """A byte-level BPE with BART's special tokens, ``<s> … </s>``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    texts = [text for number in range(8) for text in (document(number), summary(number))]
    pieces.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=330,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    pieces.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B </s>",
        special_tokens=[(token, pieces.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=64,
    )


def make_bart(folder, seed=0, **changes):
    """Save a random BART (one layer of 32 each, context 64) in ``folder``; with dropout, as the real one has."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    tokenizer = bart_tokenizer()
    values = {
        "vocab_size": len(tokenizer),
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "max_position_embeddings": 64,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BartForConditionalGeneration(BartConfig(**(values | changes)))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_asker(folder):
    """Save a random BART that often writes an answer, a separator, a question and an end; all by chance."""
    import torch

    from pairsmith.models.added_tokens import add_marker
    from pairsmith.models.question_generator import SEPARATOR
    from pairsmith.models.text_generator import load_text_generator

    asker = load_text_generator(str(make_bart(folder)), device="cpu")
    add_marker(asker, SEPARATOR, written=True)
    with torch.no_grad():
        for token, liked in ((SEPARATOR, 4.0), (asker.tokenizer.eos_token, 3.0)):
            asker.model.final_logits_bias[0, asker.tokenizer.convert_tokens_to_ids(token)] = liked
    asker.model.save_pretrained(folder)
    asker.tokenizer.save_pretrained(folder)
    return folder


def weights(folder):
    return load_file(folder / "model.safetensors")
