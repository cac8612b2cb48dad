"""Loading models of transformers with a head for a task: a saved head, or a new one to be trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor, nn

from pairsmith.core.errors import ModelError
from pairsmith.core.model_files import META, pick_device, pick_dtype, unsaid
from pairsmith.core.model_names import DtypeName
from pairsmith.models.encode import beginning
from pairsmith.models.loading import mark_pairs, opened, pad_on_the_right, refuse_missing, seeded

HeadTask = Literal[
    "question answering", "classification", "summarization", "continuation", "token vectors",
    "masked language modelling",
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
    "token vectors": ("MODEL_MAPPING", "AutoModel", "BERT, RoBERTa"),
}  # fmt: skip
"""Names in transformers of a task's models by configuration and of their loader, and examples of models."""

_EXPECTED = ("LOAD REPORT", "we will NOT tie them", "This checkpoint seem corrupted")
"""Messages of transformers about missing or random weights, which this module checks itself.

A decoder made from an encoder has no head yet. Models such as Flan-T5 have output embeddings of their own
though their kind shares them with the input; both are loaded, so no action is needed.
"""

_CONTEXT = 512  # for a model that states no longest input


@dataclass(frozen=True, slots=True)
class TextModel:
    """A model that reads texts, its tokenizer, and the longest input in tokens."""

    model: Any
    tokenizer: Any
    max_length: int

    def features(self, *texts: Sequence[str]) -> Mapping[str, Tensor]:
        """Model inputs for n texts, or n pairs given as two sequences: padded tensors ``(n, longest)``.

        What is too long is cut off; in a pair the longer text is cut first.
        """
        features: Mapping[str, Tensor] = self.tokenized(*texts, padding=True, return_tensors="pt")
        return features

    def token_counts(self, *texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text or pair, special tokens included."""
        return [len(ids) for ids in self.tokenized(*texts)["input_ids"]]

    def tokenized(self, *texts: Sequence[str], **options: Any) -> Any:
        """What the tokenizer makes of texts or pairs, none longer than ``max_length``.

        Of a text of megabytes it gets the beginning, unless the windows of the whole text are wanted.
        """
        sides = [list(side) for side in texts]
        if not options.get("return_overflowing_tokens"):
            sides = [[beginning(self.tokenizer, text, self.max_length) for text in side] for side in sides]
        return self.tokenizer(
            *sides,
            truncation=True,
            max_length=self.max_length,
            split_special_tokens=True,  # a text may hold what looks like a special token
            verbose=False,
            **options,
        )


class Loading(TypedDict, total=False):
    """How a model is loaded; see ``load_with_head``."""

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
    """A model with a head for ``task``, its tokenizer, and the longest input in tokens.

    Args:
        model: a folder or Hub id in the format of transformers; a GGUF file; ``pairsmith:tiny``;
            ``embedded:all-minilm-l6-v2`` or ``embedded:smollm2-135m-instruct``.
        task: what the head is for; for ``summarization`` it is the language model head of an encoder-decoder,
            which is random only where an encoder alone gets a decoder, see ``fresh_head``; for
            ``continuation`` that of a decoder-only model. For ``token vectors`` there is no head. For
            ``question answering`` and ``classification`` the tokenizer marks pairs, see ``mark_pairs``.
        labels: outputs of the head for each text or token, in float32; None where the task has no choice.
        device: as for ``pick_device``.
        dtype: number format of the weights, as for ``pick_dtype``.
        fresh_head: give a model without such a head a random one, to be trained. An existing head is kept.
            For ``summarization`` an encoder such as BERT gets a decoder that starts from the encoder's
            weights; what these lack, its cross-attention and its head, is random.
        seed: seed of the random weights; all others are loaded.
        max_length: longest input, special tokens included; never more than the model has positions for. The
            default is the tokenizer's limit, which is that of its training for models trained here.
    """
    from transformers import AutoConfig

    chosen = pick_device(device)
    dtype = pick_dtype(dtype, chosen)
    with (
        opened(model, f"cannot be loaded for {task} ({{}})") as (where, local),
        unsaid("transformers.modeling_utils", *_EXPECTED),
        seeded(seed),
    ):
        config = AutoConfig.from_pretrained(where, local_files_only=local)
        if labels is not None:
            config.num_labels = labels  # the model's config may be that of another head
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
        _keep_no_states(network)
    if labels is not None and dtype != "float32":
        score_in_float32(network, labels)
    positions = positions_of(network)
    longest = min(max_length or int(tokenizer.model_max_length), positions)
    return network.to(chosen).eval(), tokenizer, longest


def score_in_float32(network: nn.Module, labels: int) -> None:
    """Make the last layer of a head with ``labels`` outputs compute in float32, in place.

    bfloat16 has eight bits of precision: among thousands of pairs many would get the same score, and among
    a text's tokens several would tie for its best start.
    """
    for module in network.modules():
        if isinstance(module, nn.Linear) and module.out_features == labels:
            module.float()
            module.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))


def _keep_no_states(network: Any) -> None:
    """Have a decoder-only model keep no keys and values of its layers, which only generation needs."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(network.config) not in MODEL_FOR_CAUSAL_LM_MAPPING or written_by(network.config) != "decoder":
        return
    for part in (network, network.base_model):  # the body may have a configuration of its own
        part.config.use_cache = False


def load_tokenizer(model: str) -> Any:
    """Load only the tokenizer of ``model``, which is quicker than loading the model."""
    from transformers import AutoTokenizer

    with opened(model, "its tokenizer cannot be loaded ({})") as (where, local):
        return AutoTokenizer.from_pretrained(where, local_files_only=local)


def load_config(model: str) -> Any:
    """Load only the configuration of ``model``."""
    from transformers import AutoConfig

    with opened(model, "its config cannot be loaded ({})") as (where, local):
        return AutoConfig.from_pretrained(where, local_files_only=local)


def writes_as(model: str) -> Literal["encoder-decoder", "decoder", "nothing"]:
    """How ``model`` generates texts, by its config: ``nothing`` means an encoder alone, such as BERT."""
    return written_by(load_config(model))


def written_by(config: Any) -> Literal["encoder-decoder", "decoder", "nothing"]:
    """How a model with this transformers config generates texts; ``nothing`` means an encoder alone."""
    if config.is_encoder_decoder:
        return "encoder-decoder"
    alone = _lacks_only_a_decoder(config) and not getattr(config, "is_decoder", False)
    return "nothing" if alone else "decoder"


def _as_saved(
    name: str, where: str, task: HeadTask, config: Any, dtype: torch.dtype, *, local: bool, weights: bool
) -> tuple[Any, Any, list[str]]:
    """The model, its tokenizer, and the names of the weights that its files lack, which are random."""
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
    if body and body <= missing:  # Llama's class for questions has another name for its body than its files
        inner, report = transformers.AutoModel.from_pretrained(
            where, dtype=dtype, local_files_only=local, output_loading_info=True
        )
        setattr(network, network.base_model_prefix, inner)
        missing = missing - body | {prefix + weight for weight in report["missing_keys"]}
    return network, tokenizer, sorted(missing)


def _lacks_only_a_decoder(config: Any) -> bool:
    """Whether a model is an encoder whose layers transformers can also use in a decoder."""
    import transformers

    kind = type(config)
    return (
        kind not in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
        and kind in transformers.MODEL_FOR_MASKED_LM_MAPPING
        and kind in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    )


def _with_decoder(where: str, dtype: torch.dtype, *, local: bool) -> tuple[Any, Any, list[str]]:
    """As ``_as_saved``, for an encoder that gets a decoder of the same weights."""
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
    prefix = f"{network.base_model_prefix}."
    # A pooler sits between body and head, and belongs to the head that was trained with it.
    body = [weight for weight in missing if weight.startswith(prefix) and ".pooler." not in weight]
    if task in {"summarization", "continuation"}:
        body = missing
    if task == "token vectors":
        body, missing = [weight for weight in missing if not weight.startswith("pooler.")], []
    refuse_missing(name, body)
    if missing and not fresh_head:
        raise ModelError(
            f"model {name}: has no head for {task} (no weights {missing[0]} of the right shape); "
            "train one first, or give a model that has one"
        )


def positions_of(network: Any) -> int:
    """The longest input in tokens that the model has positions for."""
    # In a pair of models the encoder reads the input.
    body = network.encoder if network.config.model_type == "encoder-decoder" else network.base_model
    positions = getattr(body.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        positions = _CONTEXT
    table = getattr(getattr(body, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    if padding is not None:  # RoBERTa's family starts counting after padding's position
        positions -= padding + 1
    return positions
