"""Language models: steered generation with several prompts at once, and the scoring of texts.

Read the modules in this order:

- ``protocols``: what a model has to offer. ``combine`` (D3) and ``sampling`` (D4): the formulas.
  ``steering``: both of them on logits. ``decoder``: many texts at once.
- ``transformers_backend``: a model of transformers that offers all this. It is fast because ``prefixes``
  finds the prefixes that prompts share, ``kv_store`` and ``shared_cache`` store the keys and values of each
  prefix once, ``attention_plan`` groups the rows that attend to the same keys, and ``packed_weights`` speeds
  up matrix products on a CPU.
- ``remote``, ``remote_decoder``, ``servers``, ``certified``: models behind a server. ``chats``: the tokens of
  a chat, for all models.
- ``prefix_batches`` and ``likelihood``: the log-likelihoods of texts, several after one prefix at once.
- ``sequences``: sampling and beam search with encoder-decoder models. ``shared_beams``: beam search with
  decoder-only ones.
- ``loading``: models by name. ``scripted``: a model with given distributions, for tests.
"""
