"""Question generators by name."""

from typing import Literal

from pairsmith.core.errors import ModelError, SettingsError
from pairsmith.core.model_names import DtypeName
from pairsmith.methods.quip.cloze_generator import ClozeGenerator
from pairsmith.methods.quip.options import CLOZE, GenerationOptions
from pairsmith.methods.quip.passages import QuestionGenerator
from pairsmith.methods.quip.sequence_generator import SequenceGenerator
from pairsmith.models.heads import writes_as
from pairsmith.models.language.remote import is_remote
from pairsmith.models.text_generator import load_text_generator

GeneratorKind = Literal["encoder-decoder", "causal", "cloze"]


def generator_kind(model: str) -> GeneratorKind:
    """The kind of question generator that a model makes, if it writes texts and is not a server's."""
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
    model: str,
    options: GenerationOptions | None = None,
    *,
    device: str = "auto",
    dtype: DtypeName = "float32",
) -> QuestionGenerator:
    """What generates questions on passages.

    Args:
        model: ``cloze`` for sentences with a blank; else a folder or Hub id of a model with an encoder and a
            decoder that ``train-asker`` trained, or of a causal language model, which is told what to do.
        options: how questions are generated.
        device: as for ``pick_device``.
        dtype: of the weights.

    Raises:
        ModelError: the model is not there, writes no texts, or knows no separator.
        SettingsError: it is a server's, or there is no such device or answer finder.
        MissingExtra: ``answers`` needs a package that is not installed.
    """
    options = options or GenerationOptions()
    if model == CLOZE:
        return ClozeGenerator(options)
    if generator_kind(model) == "encoder-decoder":
        return SequenceGenerator(load_text_generator(model, device=device, dtype=dtype), options, model)
    # These imports take seconds that the other kinds need not wait for.
    from pairsmith.methods.quip.causal_generator import CausalGenerator
    from pairsmith.models.language.loading import load_model

    return CausalGenerator(load_model(model, device=device, dtype=dtype), options)
