"""The papers that the cards of models and data sets ask to cite, as lines of Markdown."""

CITATION = (
    "Schick and Schütze (2021): Generating Datasets with Pretrained Language Models. "
    "EMNLP 2021, arXiv:2104.07540."
)

MINING = (
    "Joshi, Blevins, Lewis, Weld and Zettlemoyer (2022): Few-shot Mining of Naturally Occurring Inputs and "
    "Outputs. arXiv:2205.04050."
)

QUIP = (
    "Jia, Lewis and Zettlemoyer (2021): Question Answering Infused Pre-training of General-Purpose "
    "Contextualized Representations. arXiv:2106.08190."
)

RETRIEVAL = (
    "Wang, Thakur, Reimers and Gurevych (2022): GPL: Generative Pseudo Labeling for Unsupervised Domain "
    "Adaptation of Dense Retrieval. NAACL 2022, arXiv:2112.07577."
)

PROMPTAGATOR = (
    "Dai, Zhao, Ma, Luan, Ni, Lu, Bakalov, Guu, Hall and Chang (2023): Promptagator: Few-shot Dense "
    "Retrieval From 8 Examples. ICLR 2023, arXiv:2209.11755."
)
