"""Row types with their Arrow schemas, readers of public formats, tasks, and utilities for texts.

A **source** is a file, a dataset folder or a Hub data set. ``sources.open_source`` opens it, whatever its
format; its ``rows()`` yields **rows**: mappings from column to value, each with its location for messages. A
**reader** turns the rows of a source into typed objects, with the functions of ``readers`` that find columns
and check texts, ids and scores. A **schema** is the Arrow type of the rows that pairsmith writes
(``schemas``), and a ``RowKind`` is a schema together with its reader, for steps that read rows of any kind.

A new file format is a function in ``sources.TABLES``. A new public data set is a reader beside these:

- texts: ``readers``; documents: ``documents``, ``files`` (text, Markdown, HTML and PDF), ``chunk_rows``;
- pairs with scores: ``readers``, ``sts`` (STS benchmark, SemEval, SICK), ``judgements`` (WMT);
- labelled pairs and texts: ``labelled_rows``, ``labelled_texts``, ``paraphrases`` (MRPC, PAWS, Quora),
  ``sentiment`` (SST-2, MR, CR), ``tagged`` (CoNLL);
- questions with answers: ``squad`` (SQuAD, MRQA), ``questions`` (those that ``ask`` and ``relabel`` write);
- queries with documents: ``beir``, ``query_rows``, ``query_pairs``, ``tuples``;
- the labelled examples of a training (seeds): ``examples``.
"""
