"""DINO (Schick and Schütze 2021): labelled pairs and texts written by a language model from instructions."""
