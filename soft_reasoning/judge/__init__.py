"""Verifiers, rewards and rules of the final answer."""
