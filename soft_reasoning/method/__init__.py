"""Methods, of the paper and published after it; none imports another."""
