"""Write labelled sentence pairs with a language model, train an encoder on them, and measure it.

    python examples/write_pairs.py [MODEL] [SENTENCES]

MODEL is any causal language model (docs/models.md), SENTENCES how many of the example sentences are used.
"""

import sys
from pathlib import Path

import pairsmith

MODEL = sys.argv[1] if len(sys.argv) > 1 else "embedded:smollm2-135m-instruct"
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 40
EXAMPLES = Path(__file__).parent

# The task has an instruction for each of the labels 1, 0.5 and 0, and says which labels a text must not fit.
task = pairsmith.load_task("sts")
model = pairsmith.load_language_model(MODEL, dtype="auto")
sentences = (EXAMPLES / "sentences.txt").read_text(encoding="utf-8").splitlines()[:COUNT]

written = pairsmith.generate_pairs(task, model, sentences, seed=1)
print(f"{len(written.rows)} pairs, {len(written.rejects)} texts rejected")
for row in written.rows[:6]:
    print(f"{row.score:g}  {row.sentence1}  {row.sentence2}")

# A sentence encoder of the same model's first layers, before and after training on the pairs.
encoder = pairsmith.load_encoder(MODEL, layers=2)
graded = EXAMPLES / "graded-pairs.tsv"
before = pairsmith.evaluate_sts(encoder, graded, bootstrap=0)["graded-pairs"].all.value
pairsmith.train_encoder(encoder, written.rows, learning_rate=1e-4, epochs=1)
after = pairsmith.evaluate_sts(encoder, graded, bootstrap=0)["graded-pairs"].all.value
print(f"Spearman's correlation with people's grades: {before:.1f} before, {after:.1f} after")
