"""Runs of data sets: what solves the problems, the folder that they are written to, and their metrics."""
