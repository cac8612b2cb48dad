"""Loading sentence encoders: saved ones, and transformers to which a pooling layer is added."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerModelCardData
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from sentence_transformers.util import is_sentence_transformer_model

from pairsmith.core.arguments import check_flag, checked_whole_number, model_name
from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.model_files import pick_device, pick_dtype, quiet_loading
from pairsmith.core.model_names import GLOVE, DtypeName, PoolingName
from pairsmith.models.encode import encode_texts
from pairsmith.models.heads import configured_positions
from pairsmith.models.loading import opened, pad_on_the_right, refuse_missing, seeded
from pairsmith.models.token_vectors import see_both_ways


def load_sentence_encoder(
    model: str | Path,
    *,
    pooling: PoolingName = "default",
    device: str = "auto",
    dtype: DtypeName = "float32",
    max_length: int | None = None,
    layers: int | None = None,
    bidirectional: bool = False,
) -> SentenceTransformer:
    """Load ``model`` as a ``SentenceTransformer``.

    Args:
        model: a folder or Hub id of a sentence-transformers model, or of any transformers encoder or
            causal language model; a GGUF file; ``pairsmith:tiny``; ``embedded:all-minilm-l6-v2`` or
            ``embedded:smollm2-135m-instruct``.
        pooling: ``default`` loads a sentence-transformers model as it was saved, and averages the last
            layer's token vectors of any other model. ``mean`` and ``cls`` pool the last layer of the
            transformer, and ignore the modules that were saved after it (the baselines of D12).
        device: ``cpu``, ``cuda``, ``cuda:1`` …, ``mps``, or ``auto``: CUDA if available, else MPS, else the
            CPU.
        dtype: number format of the weights: ``float32``, ``bfloat16``, ``float16``, or ``auto``: bfloat16 if
            the device has fast instructions for it, else float32.
        max_length: the longest input in tokens, including special tokens; it is limited by the model's
            context.
        layers: the number of the transformer's first layers that are kept; the final norm is kept, too. None:
            all layers.
        bidirectional: whether the tokens of a causal language model attend to later tokens, too.

    Returns:
        the encoder; its ``encode`` returns the vectors of n texts as a NumPy array, ``(n, d)``, float16 if
        the weights are float16, else float32. Names of special tokens in a text, such as ``[SEP]``, become
        these tokens, as always in sentence-transformers: the prompts of some encoders contain them.

    Raises:
        ModelError: the model cannot be loaded, or is no transformer.
        SettingsError: there is no such device, number format or pooling, or a number is less than 1, or
            ``bidirectional`` is neither True nor False.
    """
    model = model_name(model)
    if pooling not in get_args(PoolingName):
        raise SettingsError(f"pooling must be one of {', '.join(get_args(PoolingName))}, not {pooling!r}")
    for name, number in (("max_length", max_length), ("layers", layers)):
        if number is not None:
            checked_whole_number(number, name, 1)
    check_flag(bidirectional, "bidirectional")
    if model.startswith(GLOVE):
        raise ModelError(f"model {model}: GloVe vectors can be evaluated, but not loaded as a transformer")
    device = pick_device(device)
    number_format = getattr(torch, pick_dtype(dtype, device))
    with opened(model, "cannot be loaded ({})", modular=True) as (where, local), _complete(model), seeded(0):
        encoder = _load(where, pooling, device, number_format, local=local)
        if layers is not None:
            _keep_layers(encoder, layers, model)
        if bidirectional:
            see_both_ways(_network(encoder, model)[0], model)
    if max_length is not None:
        network = encoder.transformers_model
        context = None if network is None else configured_positions(network)
        encoder.max_seq_length = min(max_length, context or max_length)
    return encoder


_OLD_MODULES = {"Transformer", "Pooling", "Normalize", "Dense"}
"""Modules of sentence-transformers that its versions before 6 have, too."""

_OLD_POOLING = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The settings that say, in versions before 6, which ways of pooling are used."""

_OLD_TRANSFORMER = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
"""The settings of a transformer that works as in versions before 6, without a chat template."""

_OLD_DENSE = ("in_features", "out_features", "bias", "activation_function")


def save_sentence_encoder(encoder: SentenceTransformer, out: Path) -> None:
    """Save an encoder in the folder ``out``, so that ``SentenceTransformer(out)`` opens it.

    Since version 6 the library saves new import paths and settings of its modules. They are replaced by the
    old ones, which all versions read, so that older versions and other programs that read these files can
    open the folder, too, if their transformers knows the tokenizer.
    """
    with quiet_loading():
        encoder.save(str(out), create_model_card=False)
    file = out / "modules.json"
    modules = json.loads(file.read_text(encoding="utf-8"))
    for saved, module in zip(modules, encoder, strict=True):
        package, _, name = saved["type"].rpartition(".")
        if package.startswith("sentence_transformers.") and name in _OLD_MODULES:
            saved["type"] = f"sentence_transformers.models.{name}"
        for settings_file, settings in _old_settings(module).items():
            _write_json(out / saved["path"] / settings_file, settings)
    _write_json(file, modules)


def _old_settings(module: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """The files of a module's settings, as versions before 6 save them; empty if these lack a setting.

    A setting that the older versions lack would be lost, and the saved encoder would give other vectors.
    """
    if isinstance(module, Transformer) and module.get_config_dict() == _OLD_TRANSFORMER:
        length = {"max_seq_length": module.max_seq_length, "do_lower_case": module.do_lower_case}
        return {"sentence_bert_config.json": length}
    if isinstance(module, Pooling):
        modes = module.pooling_mode if isinstance(module.pooling_mode, tuple) else (module.pooling_mode,)
        flags = {name: mode in modes for mode, name in _OLD_POOLING.items()}
        width = {"word_embedding_dimension": module.embedding_dimension}
        return {"config.json": {**width, **flags, "include_prompt": module.include_prompt}}
    if isinstance(module, Dense):
        settings = module.get_config_dict()
        old = {name: settings.pop(name) for name in _OLD_DENSE}
        if set(settings.values()) == {"sentence_embedding"}:  # no residual, and no vectors of tokens
            return {"config.json": old}
    return {}


def _write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def centre_vectors(encoder: SentenceTransformer, texts: Sequence[str], most: int = 2_000) -> None:
    """Append a linear layer that subtracts the mean vector of ``texts`` from each vector, in place.

    The weights of the layer are the identity matrix, so that it changes nothing else before it is trained.
    The sentence vectors of a language model have a large component in common: with the first six layers of
    SmolLM2, the mean cosine of STSb's pairs is 0.94, and 0.53 without this component.

    Args:
        encoder: the sentence encoder.
        texts: the texts, none of which is blank.
        most: the largest number of distinct texts that are used; they are evenly spaced in sorted order.
    """
    distinct = sorted(set(texts))
    chosen = np.linspace(0, len(distinct) - 1, min(most, len(distinct))).round().astype(int)
    if encoder.truncate_dim is not None:
        raise ModelError(
            f"this base gives only the first {encoder.truncate_dim} numbers of its vectors, which cannot be "
            "centred; leave centre out, or remove truncate_dim from its config_sentence_transformers.json"
        )
    mean = torch.from_numpy(encode_texts(encoder, [distinct[index] for index in chosen]).mean(axis=0))
    width = len(mean)
    layer = Dense(
        width, width, activation_function=torch.nn.Identity(), init_weight=torch.eye(width), init_bias=-mean
    )
    normalized = any(isinstance(module, Normalize) for module in encoder)
    encoder.append(layer.to(encoder.device, next(encoder.parameters()).dtype))
    if normalized:  # the base's vectors have length 1, so the centred vectors are scaled to it again
        encoder.append(Normalize())


def _load(
    where: str, pooling: PoolingName, device: str, dtype: torch.dtype, *, local: bool
) -> SentenceTransformer:
    card = SentenceTransformerModelCardData(local_files_only=local)
    if is_sentence_transformer_model(where, local_files_only=local):
        saved = SentenceTransformer(
            where, device=device, local_files_only=local, model_card_data=card, model_kwargs={"dtype": dtype}
        )
        if pooling == "default":
            return saved
        transformer = saved[0]
        if not isinstance(transformer, Transformer):
            raise ModelError(
                f"model {where}: pooling {pooling!r} needs a transformer, but this has none; use default"
            )
    else:
        transformer = Transformer(
            where,
            model_kwargs={"dtype": dtype},
            transformer_task="feature-extraction",
            # By default the library applies the chat template of an instruct model to each text, which makes
            # inputs three times as long with tokens that are equal for all texts.
            modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            module_output_name="token_embeddings",
        )
        if transformer.tokenizer is None:
            raise ModelError(f"model {where}: holds no text tokenizer")
        pad_on_the_right(where, transformer.tokenizer, transformer.config)
        if positions := configured_positions(transformer.model):
            transformer.max_seq_length = min(transformer.max_seq_length, positions)
    mode = "cls" if pooling == "cls" else "mean"
    if mode == "cls" and transformer.tokenizer.cls_token is None:
        raise ModelError(
            f"model {where}: its tokenizer has no CLS token, so pooling 'cls' is not possible; use mean"
        )
    pooled = Pooling(transformer.get_embedding_dimension(), mode)
    return SentenceTransformer(modules=[transformer, pooled], device=device, model_card_data=card)


def _keep_layers(encoder: SentenceTransformer, count: int, model: str) -> None:
    """Remove all layers of the transformer after the first ``count``, also in its configuration."""
    network, config = _network(encoder, model)
    total = int(config.num_hidden_layers)
    if count > total:
        raise ModelError(f"model {model}: it has {total} layers, so {count} of them cannot be kept")
    stack = next(
        (m for m in network.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == total), None
    )
    if stack is None:
        raise ModelError(f"model {model}: its layers are not in one list, so they cannot be cut")
    del stack[count:]
    config.num_hidden_layers = count
    if isinstance(getattr(config, "layer_types", None), list):
        config.layer_types = config.layer_types[:count]


def _network(encoder: SentenceTransformer, model: str) -> tuple[Any, Any]:
    """The transformer of a sentence encoder, and its configuration."""
    first = encoder[0]
    if not isinstance(first, Transformer):
        raise ModelError(f"model {model}: this has no transformer whose layers or attention could be changed")
    return first.model, first.model.config


@contextmanager
def _complete(model: str) -> Iterator[None]:
    """A context that raises a ``ModelError`` if weights of the model loaded in it are missing from its files.

    Missing weights would be random. transformers logs a table of missing and superfluous weights, which is
    read and not shown. Superfluous weights, such as a language model's head, do not matter. Neither does a
    missing pooler of BERT and similar models, which no pooling here uses; it is initialised with a fixed
    seed, so that two trainings save equal files.
    """
    missing: list[str] = []

    def read_report(record: logging.LogRecord) -> bool:
        report = record.getMessage()
        if "LOAD REPORT" not in report:
            return True
        rows = [[cell.strip() for cell in line.split("|")] for line in report.splitlines()]
        missing.extend(
            row[0] for row in rows if len(row) > 1 and "MISSING" in row[1] and "pooler" not in row[0]
        )
        return False

    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(read_report)
    try:
        yield
    finally:
        logger.removeFilter(read_report)
    refuse_missing(model, missing)
