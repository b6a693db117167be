"""Many problems at once: effects, the scheduler that answers them in batches, and a thread that drives it."""
