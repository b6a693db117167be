"""Runs and their results: runner, store, metrics, statistics, reports."""
