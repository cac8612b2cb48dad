"""What a training on seeds says about validation examples that it leaves out."""

import json

from pairsmith.steps.training.reading import read_validation
from pairsmith.steps.training.settings import TrainBiencoderSettings


def test_validation_pairs_below_the_least_score_are_counted(tmp_path):
    rows = [{"sentence1": f"a {score}", "sentence2": "b", "score": score} for score in (0.9, 0.2, 0.5)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = str(tmp_path / "pairs.jsonl")
    settings = TrainBiencoderSettings(
        base="b", kind="pairs", seeds=source, validation=source, least_score=0.5
    )
    examples, left_out = read_validation(settings)
    assert [example.input for example in examples] == ["a 0.9", "a 0.5"]
    assert left_out == "1 of 3 validation pairs have a score below --least-score and are left out"
    lenient = settings.model_copy(update={"least_score": 0.0})
    assert read_validation(lenient)[1] == ""
    assert read_validation(settings.model_copy(update={"validation": None})) == ([], "")
