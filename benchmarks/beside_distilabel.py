"""Second sentences by distilabel: run by ``beside.py`` with the interpreter of an environment that has it.

    PYTHON benchmarks/beside_distilabel.py MODEL INPUTS INSTRUCTION TEXTS OUT

A pipeline with one step: the instruction, with each line of INPUTS in the place of ``<X1>``, goes through its
transformers model, TEXTS times. Sampling is that of the method. The texts are not cut at the quotation mark.
"""

import sys
from pathlib import Path

from distilabel.models import TransformersLLM
from distilabel.pipeline import Pipeline
from distilabel.steps import LoadDataFromDicts
from distilabel.steps.tasks import TextGeneration

SAMPLING = {
    "max_new_tokens": 40,
    "temperature": 1.0,
    "repetition_penalty": 1.0,
    "top_k": 5,
    "top_p": 0.9,
    "do_sample": True,
}


def main() -> None:
    model, inputs, instruction, texts, out = sys.argv[1:]
    rows = [{"sentence": line} for line in Path(inputs).read_text(encoding="utf-8").splitlines()]
    with Pipeline(name="paraphrases", cache_dir=out) as pipeline:
        load = LoadDataFromDicts(data=rows)
        write = TextGeneration(
            llm=TransformersLLM(model=model, device="cpu", generation_kwargs=SAMPLING),
            template=instruction.replace("<X1>", "{{ sentence }}"),
            columns=["sentence"],
            num_generations=int(texts),
            group_generations=False,
        )
        load >> write
    result = pipeline.run(use_cache=True)
    result["default"]["train"].to_parquet(f"{out}/rows.parquet")


if __name__ == "__main__":
    main()
