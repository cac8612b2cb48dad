"""Loads models of transformers with a head for a task; the head is loaded, too, or random, to be trained."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from pairsmith.core.arguments import check_not_empty, checked_texts
from pairsmith.core.errors import ModelError
from pairsmith.core.model_files import META, pick_device, pick_dtype, without_log_messages
from pairsmith.core.model_names import DtypeName, resolve_model
from pairsmith.models.encode import beginning, refuse_unknown_tokens
from pairsmith.models.loading import mark_pairs, opened, pad_on_the_right, refuse_missing, seeded
from pairsmith.models.span_heads import heads_kind, score_in_float32

HeadTask = Literal[
    "question answering", "classification", "summarization", "continuation", "token vectors",
    "masked language modelling", "token classification",
]  # fmt: skip

_HEADS: dict[HeadTask, tuple[str, str, str]] = {
    "question answering": (
        "MODEL_FOR_QUESTION_ANSWERING_MAPPING", "AutoModelForQuestionAnswering", "BART, BERT, Llama",
    ),
    "classification": (
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING", "AutoModelForSequenceClassification", "BART, BERT",
    ),
    "summarization": ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "AutoModelForSeq2SeqLM", "BART, T5"),
    "continuation": ("MODEL_FOR_CAUSAL_LM_MAPPING", "AutoModelForCausalLM", "BART, T5, GPT-2"),
    "masked language modelling": ("MODEL_FOR_MASKED_LM_MAPPING", "AutoModelForMaskedLM", "BERT, RoBERTa"),
    "token classification": (
        "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING", "AutoModelForTokenClassification", "BERT, RoBERTa",
    ),
    "token vectors": ("MODEL_MAPPING", "AutoModel", "BERT, RoBERTa"),
}  # fmt: skip
"""For each task: the name in transformers of the mapping from configurations to model classes, the name of
the class that loads the model, and examples of models for messages."""

_EXPECTED = ("LOAD REPORT", "we will NOT tie them", "This checkpoint seem corrupted")
"""Suppressed messages of transformers about missing or random weights, which this module checks itself.

Two of them are expected: a decoder made from an encoder has no head yet; and models such as Flan-T5 have
output embeddings of their own, although models of their type share them with the input embeddings.
"""

_CONTEXT = 512
"""The number of positions of a model whose configuration does not give it."""


@dataclass(frozen=True, slots=True)
class TextModel:
    """A model of transformers that reads texts, and its tokenizer."""

    model: Any
    tokenizer: Any
    max_length: int  # the length of the longest input in tokens, including special tokens

    def __repr__(self) -> str:
        """The model's class, name, number format and device, without its layers."""
        name, weight = getattr(self.model.config, "_name_or_path", ""), next(self.model.parameters())
        dtype = str(weight.dtype).removeprefix("torch.")
        return (
            f"{type(self).__name__}({type(self.model).__name__} {name!r}, max_length={self.max_length}, "
            f"dtype={dtype}, device={weight.device})"
        )

    def features(self, *texts: Iterable[str]) -> Mapping[str, Tensor]:
        """Model inputs for n texts, or n pairs as two sequences: padded tensors, ``(n, longest)`` int64.

        Texts are truncated to ``max_length`` tokens. Of a pair the longer text is truncated first.

        Raises:
            InputError: there are no texts, or a single text in place of a list.
        """
        sides = [checked_texts(side, "texts") for side in texts]
        for side in sides:
            check_not_empty(side, "texts", "text")
        features: Mapping[str, Tensor] = self.tokenized(*sides, padding=True, return_tensors="pt")
        return features

    def token_counts(self, *texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text or pair after truncation, including special tokens."""
        return [len(ids) for ids in self.tokenized(*texts)["input_ids"]]

    def tokenized(self, *texts: Sequence[str], **options: Any) -> Any:
        """The tokenizer's output for texts or pairs, truncated to ``max_length`` tokens.

        Only the beginning of a very long text is tokenized, unless ``options`` request the windows of the
        whole text (``return_overflowing_tokens``).
        """
        sides = [list(side) for side in texts]
        if not options.get("return_overflowing_tokens"):
            sides = [[beginning(self.tokenizer, text, self.max_length) for text in side] for side in sides]
        encoded = self.tokenizer(
            *sides,
            truncation=True,
            max_length=self.max_length,
            split_special_tokens=True,  # a special token's name within a text is ordinary text
            verbose=False,
            **options,
        )
        refuse_unknown_tokens(self.model.config, encoded["input_ids"])
        return encoded


class HeadMissingError(ModelError):
    """A model has no head for a task."""


class Loading(TypedDict, total=False):
    """Options of loading a model; see ``load_with_head``."""

    device: str
    dtype: DtypeName
    max_length: int | None


def load_with_head(
    model: str,
    task: HeadTask,
    *,
    labels: int | None = None,
    device: str = "auto",
    dtype: DtypeName = "float32",
    fresh_head: bool = False,
    seed: int = 0,
    max_length: int | None = None,
) -> tuple[Any, Any, int]:
    """Load a model with a head for ``task``; returns model, tokenizer, and the longest input in tokens.

    Args:
        model: a folder or Hub id in the format of transformers; a GGUF file; ``pairsmith:tiny``;
            ``embedded:all-minilm-l6-v2`` or ``embedded:smollm2-135m-instruct``.
        task: the task of the head. For ``summarization`` it is the language model head of an encoder-decoder
            model, for ``continuation`` that of a decoder-only model; for ``token vectors`` there is no head.
            For ``question answering`` and ``classification`` the tokenizer separates the two texts of a pair,
            see ``mark_pairs``.
        labels: the number of the head's outputs for each text or token, which are computed in float32; None
            if the task determines it.
        device: as for ``pick_device``.
        dtype: number format of the weights, as for ``pick_dtype``.
        fresh_head: whether a model without such a head gets a random head, to be trained. An existing head is
            kept. For ``summarization`` an encoder such as BERT gets a decoder with the encoder's weights; the
            weights that an encoder lacks, of cross-attention and head, are random.
        seed: random seed of the random weights.
        max_length: the longest input in tokens, including special tokens; it is limited by the number of the
            model's positions. None: the tokenizer's limit, which a model trained by pairsmith has from its
            training.
    """
    from transformers import AutoConfig

    chosen = pick_device(device)
    dtype = pick_dtype(dtype, chosen)
    with (
        opened(model, f"cannot be loaded for {task} ({{}})") as (where, local),
        without_log_messages("transformers.modeling_utils", *_EXPECTED),
        seeded(seed),
    ):
        config = AutoConfig.from_pretrained(where, local_files_only=local)
        if labels is not None:
            config.num_labels = labels  # the saved config may be that of a model with another head
        number_format = getattr(torch, dtype)
        if task == "summarization" and fresh_head and _lacks_only_a_decoder(config):
            network, tokenizer, missing = _with_decoder(where, number_format, local=local)
        else:
            network, tokenizer, missing = _as_saved(
                model, where, task, config, number_format, local=local, weights=chosen != META
            )
    _check_weights(model, network, task, missing, fresh_head=fresh_head)
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"model {model}: its tokenizer cannot tell the positions of its tokens in a text; give a model "
            "with a tokenizer.json"
        )
    tokenizer.truncation_side = "right"
    pad_on_the_right(model, tokenizer, network.config)
    if task in {"question answering", "classification"}:
        mark_pairs(tokenizer)
        _disable_cache(network)
    if labels is not None and dtype != "float32":
        score_in_float32(network, labels)
    positions = positions_of(network)
    longest = min(max_length or int(tokenizer.model_max_length), positions)
    return network.to(chosen).eval(), tokenizer, longest


def _disable_cache(network: Any) -> None:
    """Turn off a decoder-only model's cache of keys and values, which only generation needs."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(network.config) not in MODEL_FOR_CAUSAL_LM_MAPPING or written_by(network.config) != "decoder":
        return
    for part in (network, network.base_model):  # the body may have a configuration of its own
        part.config.use_cache = False


def load_tokenizer(model: str) -> Any:
    """Load only the tokenizer of ``model``, which is faster than loading the model."""
    from transformers import AutoTokenizer

    with opened(model, "its tokenizer cannot be loaded ({})") as (where, local):
        return AutoTokenizer.from_pretrained(where, local_files_only=local)


def load_config(model: str) -> Any:
    """Load only the configuration of ``model``."""
    from transformers import AutoConfig

    with opened(model, "its config cannot be loaded ({})") as (where, local):
        return AutoConfig.from_pretrained(where, local_files_only=local)


def require_reader(model: str, writers: str = "train-teacher or train-reader") -> None:
    """Refuse a model without a head for question answering by its files, before its weights are read.

    ``writers``, for the error, are the steps that write models which can be given instead.
    """
    kind = heads_kind(resolve_model(model))
    names = [] if kind == "tokens" else load_config(model).architectures or []
    if kind == "questions" or (names and not any("ForQuestionAnswering" in name for name in names)):
        cause = "is a student of infuse" if kind else f"is of the kind {names[0]}"
        advice = "; students are for answer and evaluate qa, and for load_student in Python" if kind else ""
        raise ModelError(
            f"model {model}: has no head for question answering, as it {cause}; give a model that "
            f"{writers} wrote, or another one with such a head{advice}"
        )


def writes_as(model: str) -> Literal["encoder-decoder", "decoder", "nothing"]:
    """The part of ``model`` that generates texts, by its config; ``nothing`` for an encoder such as BERT."""
    return written_by(load_config(model))


def written_by(config: Any) -> Literal["encoder-decoder", "decoder", "nothing"]:
    """The part of a model with this config that generates texts; ``nothing`` for an encoder such as BERT."""
    if config.is_encoder_decoder:
        return "encoder-decoder"
    is_encoder = _lacks_only_a_decoder(config) and not getattr(config, "is_decoder", False)
    return "nothing" if is_encoder else "decoder"


def _as_saved(
    name: str, where: str, task: HeadTask, config: Any, dtype: torch.dtype, *, local: bool, weights: bool
) -> tuple[Any, Any, list[str]]:
    """Load a model and its tokenizer; returns also the names of the weights that are not in its files.

    Those weights are random.
    """
    import transformers

    kinds, loader, such_as = _HEADS[task]
    if type(config) not in getattr(transformers, kinds):
        raise ModelError(
            f"model {name}: transformers has no {task} for models of type "
            f"{config.model_type}; give {such_as} or the like"
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(where, local_files_only=local)
    network, report = getattr(transformers, loader).from_pretrained(
        where,
        config=config,
        dtype=dtype,
        local_files_only=local,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        device_map=None if weights else META,
    )
    other_sizes = (str(key[0]) if isinstance(key, tuple) else str(key) for key in report["mismatched_keys"])
    missing = {*report["missing_keys"], *other_sizes}
    prefix = f"{network.base_model_prefix}."
    body = {weight for weight, _ in network.named_parameters() if weight.startswith(prefix)}
    # Llama's class for question answering calls the model's body by another name than its files do.
    if body and body <= missing:
        inner, report = transformers.AutoModel.from_pretrained(
            where, dtype=dtype, local_files_only=local, output_loading_info=True
        )
        setattr(network, network.base_model_prefix, inner)
        missing = missing - body | {prefix + weight for weight in report["missing_keys"]}
    return network, tokenizer, sorted(missing)


def _lacks_only_a_decoder(config: Any) -> bool:
    """Whether this is the config of an encoder whose layers transformers can also use as a decoder."""
    import transformers

    kind = type(config)
    return (
        kind not in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
        and kind in transformers.MODEL_FOR_MASKED_LM_MAPPING
        and kind in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    )


def _with_decoder(where: str, dtype: torch.dtype, *, local: bool) -> tuple[Any, Any, list[str]]:
    """As ``_as_saved``, for an encoder, which gets a decoder with the same weights."""
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
    return network, tokenizer, [name for name in report["missing_keys"] if not name.startswith("pooler.")]


def _check_weights(name: str, network: Any, task: HeadTask, missing: list[str], *, fresh_head: bool) -> None:
    """Raise a ``ModelError`` if a weight of the body is missing, or of the head unless it may be random.

    For the head it is a ``HeadMissingError``.
    """
    prefix = f"{network.base_model_prefix}."
    # A pooler, between body and head, is trained with the head, and counts as a part of it.
    body = [weight for weight in missing if weight.startswith(prefix) and ".pooler." not in weight]
    if task in {"summarization", "continuation"}:
        body = missing
    if task == "token vectors":
        body, missing = [weight for weight in missing if not weight.startswith("pooler.")], []
    refuse_missing(name, body)
    if missing and not fresh_head:
        raise HeadMissingError(
            f"model {name}: has no head for {task} (no weights {missing[0]} of the right shape); "
            "train one first, or give a model that has one"
        )


def positions_of(network: Any) -> int:
    """The number of positions of a model: the length of its longest input in tokens."""
    # In a model of encoder and decoder, the encoder reads the input.
    body = network.encoder if network.config.model_type == "encoder-decoder" else network.base_model
    return configured_positions(body) or _CONTEXT


def configured_positions(body: Any) -> int | None:
    """The number of positions of a transformer without a head; None if its configuration does not give it."""
    positions = getattr(body.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return None
    table = getattr(getattr(body, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    # Models like RoBERTa count positions from the one after the padding's position.
    return positions if padding is None else positions - padding - 1
