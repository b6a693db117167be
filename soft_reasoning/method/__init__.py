"""Methods, of the paper and published after it: one per file, and none imports another."""
