"""Language models: how texts are written with several prompts at once, and how texts are scored.

To be read in this order:

- ``protocols``: what a model has to offer. ``combine`` (D3) and ``sampling`` (D4): the formulas.
  ``steering``: both of them on logits. ``decoder``: many texts at once.
- ``transformers_backend``: a model of transformers that offers all this. It is fast because ``prefixes``
  finds what prompts begin with in common, ``kv_store`` and ``shared_cache`` keep the keys and values of that
  once, ``attention_plan`` says which tokens attend to what, and ``packed_weights`` are faster on a processor.
- ``remote``, ``remote_decoder``, ``servers``, ``certified``: models behind a server.
- ``decoders``: the decoder of a model of either kind.
- ``prefix_batches`` and ``likelihood``: scoring texts, several behind one beginning.
- ``sequences``: sampling and beam search with encoder-decoder models. ``shared_beams``: beam search with
  decoder-only ones.
- ``loading``: models by name. ``scripted``: a model with given distributions, for tests.
"""
