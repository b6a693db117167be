"""The methods of the paper, one per file; ``since`` holds those published after it."""
