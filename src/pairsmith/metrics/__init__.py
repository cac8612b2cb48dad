"""Measures, as functions of arrays and texts: correlation, AUROC, BERTScore, SQuAD, ROUGE, bootstrap."""
