"""Question generators by name."""

from pathlib import Path
from typing import Literal

from pairsmith.core.arguments import model_name
from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.model_names import CLOZE, DtypeName
from pairsmith.core.stop_signals import import_whole
from pairsmith.methods.quip.cloze_generator import ClozeGenerator
from pairsmith.methods.quip.options import GenerationOptions
from pairsmith.methods.quip.passages import QuestionGenerator
from pairsmith.methods.quip.sequence_generator import SequenceGenerator
from pairsmith.models.heads import writes_as
from pairsmith.models.language.remote import is_remote
from pairsmith.models.text_generator import load_text_generator

GeneratorKind = Literal["encoder-decoder", "causal", "cloze"]


def generator_kind(model: str) -> GeneratorKind:
    """The kind of question generator that a model is; an encoder and a server's model are refused."""
    if model == CLOZE:
        return "cloze"
    if is_remote(model):
        raise SettingsError(f"model {model}: ask needs a model that it can load; give a folder or a Hub id")
    writes = writes_as(model)
    if writes == "nothing":
        raise ModelError(
            f"model {model}: an encoder alone cannot write text; train a question generator from it with "
            f"pairsmith train-asker --base {model}"
        )
    return "encoder-decoder" if writes == "encoder-decoder" else "causal"


def load_question_generator(
    model: str | Path,
    options: GenerationOptions | None = None,
    *,
    device: str = "auto",
    dtype: DtypeName = "float32",
) -> QuestionGenerator:
    """Load a question generator by name (Q2, Q6).

    Args:
        model: ``cloze`` for the generator without a model; else a folder or Hub id: an encoder-decoder model
            that ``train-asker`` trained, or a causal language model, which follows an instruction.
        options: how questions are generated: ``pairsmith.methods.quip.options.GenerationOptions``.
        device: as for ``load_encoder``.
        dtype: number format of the weights, as for ``load_encoder``.

    Returns:
        The generator, for ``generate_questions``. Its ``limit`` is the longest passage in tokens, and
        ``length(text)`` the number of tokens in a text; ``cloze`` counts words and punctuation marks instead.

    Raises:
        ModelError: the model does not exist, cannot write text, or has no separator token.
        SettingsError: the model is a server's, or there is no such device or answer finder.
        MissingExtra: ``options.answers`` needs a package that is not installed.
    """
    model = model_name(model)
    if options is None:
        options = GenerationOptions()
    elif not isinstance(options, GenerationOptions):
        raise SettingsError(
            "options must be pairsmith.methods.quip.options.GenerationOptions(…), which takes each option by "
            f"its name, not {options!r:.60}"
        )
    if model == CLOZE:
        return ClozeGenerator(options)
    kind = generator_kind(model)
    import_whole("transformers.modeling_utils")  # not with this module, as it takes seconds
    if kind == "encoder-decoder":
        return SequenceGenerator(load_text_generator(model, device=device, dtype=dtype), options, model)
    # These imports take seconds that the other kinds need not wait for.
    from pairsmith.methods.quip.causal_generator import CausalGenerator
    from pairsmith.models.language.loading import load_model

    return CausalGenerator(load_model(model, device=device, dtype=dtype), options)
