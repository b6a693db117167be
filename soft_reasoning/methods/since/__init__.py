"""Methods that were published after the paper, one file per method; none imports another."""
