"""Loading a summariser from Python (M9)."""

from pathlib import Path

from pairsmith.core.arguments import checked_whole_number, model_name
from pairsmith.core.model_names import DtypeName
from pairsmith.models.text_generator import LEAST_READ, TextGenerator, load_text_generator


def load_summarizer(
    model: str | Path, *, device: str = "auto", dtype: DtypeName = "float32", max_length: int | None = None
) -> TextGenerator:
    """Load a model that writes summaries (M9).

    Args:
        model: a folder that ``train-summarizer`` wrote, or a folder or Hub id of a model with an encoder and
            a decoder, such as BART, or with a decoder only.
        device: as for ``load_encoder``.
        dtype: number format of the weights, as for ``load_encoder``.
        max_length: the longest text in tokens, at least 8, including special tokens; the rest of a longer
            text is not read. None: as in the training, else the model's own limit.

    Returns:
        the summariser. For n texts, ``summarize`` returns n summaries, and ``is_truncated`` whether only the
        beginning of each text is read.

    Raises:
        ModelError: the model cannot be loaded, or lacks a token that begins or ends a text.
        SettingsError: an argument has an invalid value, or there is no such device.
    """
    model = model_name(model)
    if max_length is not None:
        checked_whole_number(max_length, "max_length", LEAST_READ)
    return load_text_generator(model, device=device, dtype=dtype, max_length=max_length)
