"""Text classifiers: a sentence encoder with a linear head, saved in a folder that other tools can open (D14).

The folder is that of the encoder, and ``SentenceTransformer`` opens it. In addition it contains
``classifier.safetensors`` with the head's ``weight`` (k, d) and ``bias`` (k,), ``classifier.json`` with the
names of the k labels, and ``trained-on.txt`` with a fingerprint of each training text.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer

from pairsmith.core.arguments import (
    check_not_blank,
    checked_folder,
    checked_texts,
    checked_whole_number,
    model_name,
)
from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import ModelError, SettingsError, counted, first_line
from pairsmith.core.model_names import DtypeName, resolve_model
from pairsmith.models.encode import encode_texts, not_finite
from pairsmith.models.sentence_encoder import load_sentence_encoder, save_sentence_encoder
from pairsmith.models.trained_on import read_trained_on, write_trained_on

CLASSIFIER_FILE = "classifier.safetensors"
LABELS = "classifier.json"


@dataclass(frozen=True, slots=True, eq=False)
class TextClassifier:
    """A sentence encoder with a linear head, whose input is the text's vector scaled to length 1.

    Attributes:
        encoder: the sentence encoder, with vectors of d numbers.
        labels: the names of the k labels.
        weight: the head's weights, ``(k, d)`` float32.
        bias: the head's biases, ``(k,)`` float32.
        trained_on: the ``fingerprint_of`` each training text; empty if the head was not trained.
        by_names: whether the head's weights are the vectors of descriptions of the labels, so that scores are
            cosines (``classifier_of_names``).
    """

    encoder: SentenceTransformer
    labels: tuple[str, ...]
    weight: Float32s
    bias: Float32s
    trained_on: frozenset[str] = frozenset()
    by_names: bool = False

    def __repr__(self) -> str:
        """The labels and the device, without the encoder's layers and the weights."""
        labels = f"{counted(len(self.labels), 'labels')}: {', '.join(self.labels)}"
        return f"{type(self).__name__}({labels}, device={self.encoder.device})"

    def scores(
        self, texts: Iterable[str], *, batch_size: int = 64, advance: Callable[[int], None] = lambda _: None
    ) -> Float32s:
        """The score of each label for n texts: ``(n, k)`` float32. The highest score is predicted (D14).

        The scores of a trained classifier are unnormalised log-probabilities; those of a classifier by names
        are cosines, in [-1, 1].

        Args:
            texts: n texts, none of which is blank; n may be 0.
            batch_size: the largest number of texts in a batch.
            advance: is called after each batch with the number of its texts.
        """
        vectors = text_unit_vectors(self.encoder, texts, batch_size=batch_size, advance=advance)
        if not len(vectors):  # without texts their width is not known
            return np.zeros((0, len(self.labels)), np.float32)
        scores: Float32s = vectors @ self.weight.T + self.bias
        return scores

    def confidences(
        self, texts: Iterable[str], *, batch_size: int = 64, advance: Callable[[int], None] = lambda _: None
    ) -> Float32s:
        """The probability of each label for n texts: ``(n, k)`` float32; each row sums to 1 (D14).

        A classifier by names has no probabilities; its cosines, in [-1, 1], are returned. The arguments are
        as for ``scores``.
        """
        scores = self.scores(texts, batch_size=batch_size, advance=advance)
        if self.by_names or not len(scores):
            return scores
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: Float32s = powers / powers.sum(axis=1, keepdims=True)
        return probabilities

    def predict(self, texts: Iterable[str]) -> list[str]:
        """The predicted label of each of n texts, none of which is blank; n may be 0."""
        texts = checked_texts(texts, "texts")
        return [self.labels[best] for best in self.scores(texts).argmax(axis=1).tolist()] if texts else []

    def save(self, folder: str | Path) -> None:
        """Save the classifier for ``load_classifier``; ``SentenceTransformer(folder)`` opens its encoder."""
        folder = checked_folder(folder, "folder")
        save_sentence_encoder(self.encoder, folder)
        head = {"weight": np.ascontiguousarray(self.weight), "bias": np.ascontiguousarray(self.bias)}
        save_file(head, str(folder / CLASSIFIER_FILE))
        content = {"labels": list(self.labels), "normalize_embeddings": True}
        text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        (folder / LABELS).write_text(text, encoding="utf-8")
        write_trained_on(folder, self.trained_on)


def text_unit_vectors(
    encoder: SentenceTransformer,
    texts: Iterable[str],
    *,
    batch_size: int = 64,
    advance: Callable[[int], None] = lambda _: None,
) -> Float32s:
    """The vectors of n texts, none of which is blank, scaled to length 1: ``(n, d)`` float32 (D14).

    A zero vector stays zero. ``advance`` is called after each batch with the number of its texts.
    """
    batch_size = checked_whole_number(batch_size, "batch_size", 1)
    texts = checked_texts(texts, "texts")
    check_not_blank(texts, "texts")
    vectors = encode_texts(encoder, texts, batch_size=batch_size, advance=advance)
    if not np.isfinite(vectors).all():
        raise not_finite("the encoder gives vectors")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Float32s = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return scaled


def classifier_of_names(encoder: SentenceTransformer, names: Mapping[str, Sequence[str]]) -> TextClassifier:
    """A classifier without training: it predicts the label whose descriptions are most similar to the text.

    ``names`` has one or more descriptions of each of the k labels. A label's row of ``weight``, ``(k, d)``,
    is the mean of its descriptions' unit vectors, scaled to length 1; ``bias``, ``(k,)``, is 0.
    """
    means = [text_unit_vectors(encoder, list(texts)).mean(axis=0) for texts in names.values()]
    weight = np.stack([mean / (float(np.linalg.norm(mean)) or 1.0) for mean in means]).astype(np.float32)
    return TextClassifier(encoder, tuple(names), weight, np.zeros(len(names), np.float32), by_names=True)


def choose_classifier(
    model: str,
    names: Mapping[str, Sequence[str]],
    *,
    device: str = "auto",
    dtype: DtypeName = "float32",
    max_length: int | None = None,
) -> TextClassifier:
    """Load the classifier ``model`` or, if there are ``names``, make one of these and the encoder ``model``.

    Raises:
        SettingsError: as for ``check_choice``.
        ModelError: as for ``check_choice``, or the model cannot be loaded.
    """
    check_choice(model, names)
    if not names:
        return load_classifier(model, device=device, dtype=dtype, max_length=max_length)
    encoder = load_sentence_encoder(model, device=device, dtype=dtype, max_length=max_length)
    return classifier_of_names(encoder, names)


def check_choice(model: str, names: Mapping[str, Sequence[str]]) -> None:
    """Check that either ``model`` is a trained classifier, or there are descriptions of labels (``names``).

    Raises:
        SettingsError: both are given.
        ModelError: neither is given.
    """
    trained = is_classifier(model)
    if trained and names:
        raise SettingsError(f"--name is for an encoder; {model} is a trained classifier, so leave --name out")
    if not (trained or names):
        raise ModelError(
            f"model {model} is no classifier; give a folder that train-classifier wrote, or an encoder and a "
            'description of each label: --name good="a good movie review"'
        )


def is_classifier(model: str) -> bool:
    """Whether ``model`` is a folder, on this machine or in a store, that contains a classifier's head."""
    return (Path(resolve_model(model)) / LABELS).is_file()


def load_classifier(
    model: str | Path, *, device: str = "auto", dtype: DtypeName = "float32", max_length: int | None = None
) -> TextClassifier:
    """Load a text classifier: a sentence encoder with a linear head (D14).

    Args:
        model: a folder that ``train-classifier`` or a classifier's ``save`` wrote.
        device: as for ``load_encoder``.
        dtype: number format of the encoder's weights, as for ``load_encoder``; the head's are float32.
        max_length: the longest text in tokens, including special tokens; it is limited by the encoder's
            context.

    Returns:
        the classifier, whose ``labels`` are k texts. For n texts, ``predict`` returns n labels, ``scores``
        the unnormalised log-probability of each label, ``(n, k)`` float32, and ``confidences`` the
        probabilities, ``(n, k)`` float32, whose rows sum to 1.

    Raises:
        ModelError: the folder holds no classifier, or a damaged one.
        SettingsError: an argument has an invalid value, or there is no such device.
    """
    model = model_name(model)
    if not is_classifier(model):
        raise ModelError(f"{model} holds no classifier; give a folder that train-classifier wrote")
    folder = Path(resolve_model(model))
    try:
        labels = tuple(map(str, json.loads((folder / LABELS).read_text(encoding="utf-8"))["labels"]))
        head = load_file(str(folder / CLASSIFIER_FILE))
        weight, bias = head["weight"], head["bias"]
    except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
        raise ModelError(
            f"{model}: its classifier cannot be read ({first_line(error)}); train it again"
        ) from error
    encoder = load_sentence_encoder(model, device=device, dtype=dtype, max_length=max_length)
    if weight.shape != (len(labels), encoder.get_embedding_dimension()) or bias.shape != (len(labels),):
        raise ModelError(
            f"{model}: the head has the shape {weight.shape}, which does not fit {len(labels)} labels and "
            f"vectors of {encoder.get_embedding_dimension()} numbers; train it again"
        )
    return TextClassifier(encoder, labels, weight, bias, read_trained_on(model))
