"""Runs of data sets: solvers, the folder of a run, and its metrics."""
