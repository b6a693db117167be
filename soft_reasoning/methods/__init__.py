"""Methods, one per file."""
