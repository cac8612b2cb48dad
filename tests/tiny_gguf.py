"""GGUF files of a random Llama small enough to make on the spot, written as llama.cpp's converter does."""

import json
from functools import cache

import numpy as np
from tests.conftest import _byte_level_tokenizer

WIDTH = 32
HEADS, KEY_HEADS = 4, 2
END = "<|endoftext|>"


def llama(seed=0):
    """A random Llama of 2 layers, in float32, as transformers has it; its output layer is its own."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=len(_tokens()[0]),
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            num_key_value_heads=KEY_HEADS,
            max_position_embeddings=64,
            rms_norm_eps=1e-5,
            initializer_range=0.2,
            bos_token_id=0,
            eos_token_id=0,
        )
        return LlamaForCausalLM(config).eval()


def make_gguf(
    file,
    kind="F16",
    seed=0,
    *,
    architecture="llama",
    tokenizer=True,
    left_out=(),
    inner=2 * WIDTH,
    scaled=False,
):
    """Write a random Llama into ``file``.

    ``kind`` is how its matrices are stored (F32, F16, BF16, Q8_0, Q4_1 …); ``architecture`` is what it
    claims to be, ``inner`` how wide it says that its inner layers are; ``left_out`` are tensors that it lacks;
    ``scaled`` adds the factors of positions that files of Llama 3.1 have.
    """
    import gguf

    config, writer = llama(seed).config, gguf.GGUFWriter(file, architecture)
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(inner)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if tokenizer:
        _add_tokenizer(writer)
    if scaled:
        writer.add_tensor("rope_freqs.weight", np.ones(WIDTH // HEADS // 2, np.float32))
    stored = gguf.GGMLQuantizationType[kind]
    for name, values in _tensors(seed).items():
        if name in left_out:
            continue
        if values.ndim == 1 or stored == gguf.GGMLQuantizationType.F32:  # norms are never rounded
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def converted(model, barrier, folders):
    """Convert a file at the same time as another process, and tell where it is; for ``multiprocessing``."""
    from transformers import AutoTokenizer, LlamaForCausalLM  # noqa: F401 - which takes seconds, before they meet

    from pairsmith.core.gguf import gguf_folder

    barrier.wait()
    folders.put(str(gguf_folder(model)))


@cache
def _tokens():
    """The tokens, in order, and the merges of a byte-level BPE."""
    model = json.loads(_byte_level_tokenizer().to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]


def _add_tokenizer(writer):
    from gguf import TokenType

    tokens, merges = _tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token == END else TokenType.NORMAL for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index(END))
    writer.add_eos_token_id(tokens.index(END))


def _tensors(seed):
    """The weights under llama.cpp's names."""
    weights = {name: value.detach().numpy() for name, value in llama(seed).named_parameters()}
    names = {
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
        "output": "lm_head",
    }
    for layer in range(2):
        old, new = f"model.layers.{layer}", f"blk.{layer}"
        names |= {
            f"{new}.attn_norm": f"{old}.input_layernorm",
            f"{new}.ffn_norm": f"{old}.post_attention_layernorm",
            f"{new}.attn_q": f"{old}.self_attn.q_proj",
            f"{new}.attn_k": f"{old}.self_attn.k_proj",
            f"{new}.attn_v": f"{old}.self_attn.v_proj",
            f"{new}.attn_output": f"{old}.self_attn.o_proj",
            f"{new}.ffn_gate": f"{old}.mlp.gate_proj",
            f"{new}.ffn_up": f"{old}.mlp.up_proj",
            f"{new}.ffn_down": f"{old}.mlp.down_proj",
        }
    tensors = {f"{new}.weight": weights[f"{old}.weight"] for new, old in names.items()}
    for name, values in tensors.items():
        heads = HEADS if "attn_q" in name else KEY_HEADS if "attn_k" in name else 0
        if heads:  # llama.cpp turns pairs of neighbours, transformers the two halves of a head
            halves = values.reshape(heads, 2, WIDTH // HEADS // 2, WIDTH)
            tensors[name] = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
    return tensors
