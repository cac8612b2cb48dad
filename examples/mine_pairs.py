"""Find pairs of texts that belong together in two lists, and hard negatives for them.

python examples/mine_pairs.py
"""

from pathlib import Path

import pairsmith

lines = (Path(__file__).parent / "graded-pairs.tsv").read_text(encoding="utf-8").splitlines()[1:]
first, second, _ = zip(*(line.split("\t") for line in lines), strict=True)
encoder = pairsmith.load_encoder("embedded:all-minilm-l6-v2")

# Every text with the texts of the other list whose cosine stands out among both texts' neighbours.
mined = pairsmith.mine_pairs(first, second, encoder, k=4, best=20)
for pair in mined[:5]:
    print(f"margin {pair.margin:.2f}  {pair.input}  {pair.output}")

# Texts that are near a pair's first text, and less near than its second.
pairs = [(pair.input, pair.output) for pair in mined]
for row in pairsmith.find_hard_negatives(pairs, second, encoder, count=2)[:5]:
    print(f"{row.query}\n  positive: {row.positive}\n  negatives: {'; '.join(row.negatives)}")
