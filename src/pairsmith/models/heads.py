"""Models of transformers with a head for a task: loaded whole, or with a head to be trained."""

from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from pairsmith.core.errors import ModelError, first_line
from pairsmith.core.model_files import check_model_folder, pick_device, pick_dtype, quiet_loading, unsaid
from pairsmith.core.model_names import DtypeName, not_on_hub, resolve_model

Task = Literal[
    "question answering", "classification", "summarization", "token vectors", "masked language modelling"
]

_EXPECTED = ("LOAD REPORT", "we will NOT tie them", "This checkpoint seem corrupted")
"""Messages of transformers about missing or random weights, which this module checks itself.

A decoder made from an encoder has no head yet. Models such as Flan-T5 have output embeddings of their own
though their kind shares them with the input; both are loaded, so no action is needed.
"""

_CONTEXT = 512  # for a model that states no longest input


def load_with_head(
    model: str,
    task: Task,
    *,
    labels: int | None = None,
    device: str,
    dtype: DtypeName,
    fresh_head: bool = False,
    seed: int = 0,
) -> tuple[Any, Any, int]:
    """A model with a head for ``task``, its tokenizer, and the longest input in tokens.

    Args:
        model: a folder or Hub id in the format of transformers; ``pairsmith:tiny``;
            ``embedded:all-minilm-l6-v2``.
        task: what the head is for; for ``summarization`` it is the language model head of an encoder-decoder,
            which is random only where an encoder alone gets a decoder, see ``fresh_head``. For ``token
            vectors`` there is no head.
        labels: outputs of the head for each text or token, in float32; None where the task has no choice.
        device: as for ``pick_device``.
        dtype: number format of the weights, as for ``pick_dtype``.
        fresh_head: give a model without such a head a random one, to be trained. An existing head is kept.
            For ``summarization`` an encoder such as BERT gets a decoder that starts from the encoder's
            weights; what these lack, its cross-attention and its head, is random.
        seed: seed of the random weights; all others are loaded.
    """
    chosen = pick_device(device)
    dtype = pick_dtype(dtype, chosen)
    where = resolve_model(model)
    local = Path(where).is_dir()
    if local:
        check_model_folder(Path(where), model)
    tokenizer, network, missing = _load(
        model, where, task, labels, getattr(torch, dtype), seed, local=local, fresh_head=fresh_head
    )
    _check_weights(model, network, task, missing, fresh_head=fresh_head)
    _make_usable(model, network, tokenizer)
    if labels is not None and dtype != "float32":
        score_in_float32(network, labels)
    return network.to(chosen).eval(), tokenizer, _context(network, tokenizer)


def score_in_float32(network: nn.Module, labels: int) -> None:
    """Make the last layer of a head with ``labels`` outputs compute in float32, in place.

    bfloat16 has eight bits of precision: among thousands of pairs many would get the same score, and among
    a text's tokens several would tie for its best start.
    """
    for module in network.modules():
        if isinstance(module, nn.Linear) and module.out_features == labels:
            module.float()
            module.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))


def load_tokenizer(model: str) -> Any:
    """Load only the tokenizer of ``model``, which is quicker than loading the model."""
    from transformers import AutoTokenizer

    return _part(model, AutoTokenizer, "tokenizer")


def load_config(model: str) -> Any:
    """Load only the configuration of ``model``."""
    from transformers import AutoConfig

    return _part(model, AutoConfig, "config")


def writes_as(model: str) -> Literal["encoder-decoder", "decoder", "nothing"]:
    """How ``model`` generates texts, by its config: ``nothing`` means an encoder alone, such as BERT."""
    config = load_config(model)
    if config.is_encoder_decoder:
        return "encoder-decoder"
    alone = _lacks_only_a_decoder(config) and not getattr(config, "is_decoder", False)
    return "nothing" if alone else "decoder"


def _part(model: str, loader: Any, what: str) -> Any:
    where = resolve_model(model)
    local = Path(where).is_dir()
    if local:
        check_model_folder(Path(where), model)
    try:
        return loader.from_pretrained(where, local_files_only=local)
    except Exception as error:  # whatever a library raises on damaged or unknown files
        if not local:
            raise ModelError(not_on_hub(model, error)) from error
        raise ModelError(f"model {model}: its {what} cannot be loaded ({first_line(error)})") from error


def _load(
    name: str,
    where: str,
    task: Task,
    labels: int | None,
    dtype: torch.dtype,
    seed: int,
    *,
    local: bool,
    fresh_head: bool,
) -> tuple[Any, Any, list[str]]:
    """The tokenizer, the model, and the names of the weights that its files lack, which are random."""
    import transformers

    kinds, loader, such_as = {
        "question answering": (
            transformers.MODEL_FOR_QUESTION_ANSWERING_MAPPING,
            transformers.AutoModelForQuestionAnswering,
            "BART, BERT or the like",
        ),
        "classification": (
            transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
            transformers.AutoModelForSequenceClassification,
            "BART, BERT or the like",
        ),
        "summarization": (
            transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
            transformers.AutoModelForSeq2SeqLM,
            "BART, T5 or the like",
        ),
        "masked language modelling": (
            transformers.MODEL_FOR_MASKED_LM_MAPPING,
            transformers.AutoModelForMaskedLM,
            "BERT, RoBERTa or the like",
        ),
        "token vectors": (transformers.MODEL_MAPPING, transformers.AutoModel, "BERT, RoBERTa or the like"),
    }[task]
    try:
        with (
            quiet_loading(local=local),
            unsaid("transformers.modeling_utils", *_EXPECTED),
            torch.random.fork_rng(devices=[]),
        ):
            torch.manual_seed(seed)
            config = transformers.AutoConfig.from_pretrained(where, local_files_only=local)
            if task == "summarization" and fresh_head and _lacks_only_a_decoder(config):
                return _with_decoder(where, dtype, local=local)
            if type(config) not in kinds:
                raise ModelError(
                    f"model {name}: transformers has no {task} for models of type "
                    f"{config.model_type}; give {such_as}"
                )
            if labels is not None:
                config.num_labels = labels  # the model's config may be that of another head
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, local_files_only=local)
            network, report = loader.from_pretrained(
                where,
                config=config,
                dtype=dtype,
                local_files_only=local,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except ModelError:
        raise
    except Exception as error:  # whatever a library raises on a damaged or unknown model
        if not local:
            raise ModelError(not_on_hub(name, error)) from error
        raise ModelError(f"model {name}: cannot be loaded for {task} ({first_line(error)})") from error
    other_sizes = (str(key[0]) if isinstance(key, tuple) else str(key) for key in report["mismatched_keys"])
    return tokenizer, network, sorted({*report["missing_keys"], *other_sizes})


def _lacks_only_a_decoder(config: Any) -> bool:
    """Whether this is an encoder whose layers transformers can also use as a decoder's."""
    import transformers

    kind = type(config)
    return (
        kind not in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
        and kind in transformers.MODEL_FOR_MASKED_LM_MAPPING
        and kind in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    )


def _with_decoder(where: str, dtype: torch.dtype, *, local: bool) -> tuple[Any, Any, list[str]]:
    """An encoder's tokenizer, the encoder with a decoder of its weights, and names of missing weights."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(where, local_files_only=local)
    encoder, report = transformers.AutoModel.from_pretrained(
        where, local_files_only=local, output_loading_info=True
    )
    network = transformers.EncoderDecoderModel.from_encoder_decoder_pretrained(
        decoder_pretrained_model_name_or_path=where, encoder_model=encoder, decoder_local_files_only=local
    ).to(dtype)
    tokens = {
        "pad_token_id": tokenizer.pad_token_id,
        "decoder_start_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
    }
    for name, token in tokens.items():
        setattr(network.config, name, token)
        setattr(network.generation_config, name, token)
    return tokenizer, network, [name for name in report["missing_keys"] if not name.startswith("pooler.")]


def _check_weights(name: str, network: Any, task: Task, missing: list[str], *, fresh_head: bool) -> None:
    prefix = f"{network.base_model_prefix}."
    # A pooler sits between body and head, and belongs to the head that was trained with it.
    body = [weight for weight in missing if weight.startswith(prefix) and ".pooler." not in weight]
    if task == "summarization":
        body = missing
    if task == "token vectors":
        body, missing = [weight for weight in missing if not weight.startswith("pooler.")], []
    if body:
        raise ModelError(
            f"model {name}: its weights lack {body[0]} ({len(body)} missing in all), "
            "so it does not match its config.json"
        )
    if missing and not fresh_head:
        raise ModelError(
            f"model {name}: has no head for {task} (no weights {missing[0]} of the right shape); "
            "train one first, or give a model that has one"
        )


def _make_usable(name: str, network: Any, tokenizer: Any) -> None:
    """Pad on the right, and with the end token where a causal model has no padding token.

    Padding is masked out, so which token it is does not matter. The side does: models with learned
    positions count them from the left end, and BART's decoder is not told where padding is.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"model {name}: its tokenizer cannot tell the positions of its tokens in a text; give a model "
            "with a tokenizer.json"
        )
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    if tokenizer.pad_token is None:
        stand_in = tokenizer.eos_token or tokenizer.unk_token
        if stand_in is None:
            raise ModelError(f"model {name}: its tokenizer has neither a padding nor an end token")
        tokenizer.pad_token = stand_in
    network.config.pad_token_id = tokenizer.pad_token_id


def _context(network: Any, tokenizer: Any) -> int:
    """The longest input in tokens that the model has positions for and its tokenizer admits."""
    # In a pair of models the encoder reads the input.
    body = network.encoder if network.config.model_type == "encoder-decoder" else network.base_model
    positions = getattr(body.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        positions = _CONTEXT
    table = getattr(getattr(body, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    if padding is not None:  # RoBERTa's family starts counting after padding's position
        positions -= padding + 1
    return min(positions, int(tokenizer.model_max_length))
