"""The commands of the console script soft-reasoning; entry.py names them."""
