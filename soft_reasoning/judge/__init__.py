"""Verifiers, values of unfinished solutions, coherence, rewards and final-answer rules."""
