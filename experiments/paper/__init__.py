"""The tables and figures of the paper: its numbers, and small runs of every item."""
