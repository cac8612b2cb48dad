"""Settings for training a sentence encoder on scored pairs."""

from pydantic import Field

from pairsmith.core.fields import Pooling, TextLength
from pairsmith.core.settings import BY_CONTENT
from pairsmith.methods.dino.training_options import EncoderOptions
from pairsmith.training.options import Attention, Layers, TrainingDevice


class TrainEncoderSettings(EncoderOptions):
    """A sentence encoder, trained on pairs with similarity scores (D10)."""

    base: str = Field(
        description="Model to start from: a folder or Hub id of a sentence-transformers model, or of any "
        "transformers encoder or causal language model; a GGUF file; embedded:smollm2-135m-instruct; "
        "embedded:all-minilm-l6-v2; or pairsmith:tiny."
    )
    data: str = Field(
        description="Scored pairs: a dataset folder, as postprocess writes it, or any file, folder or Hub "
        "data set with the columns sentence1, sentence2, score. Rows of a folder's split validation choose "
        "the best step.",
        json_schema_extra=BY_CONTENT,
    )
    layers: Layers = None
    attention: Attention = "base"
    pooling: Pooling = "default"
    max_length: TextLength = None
    device: TrainingDevice = "auto"
