"""Real models that reason: their files, recordings of their answers, and tables of rules replayed on them."""
