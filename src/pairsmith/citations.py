"""The paper that a card asks its reader to cite, as a line of Markdown."""

CITATION = (
    "Schick and Schütze (2021): Generating Datasets with Pretrained Language Models. "
    "EMNLP 2021, arXiv:2104.07540."
)
