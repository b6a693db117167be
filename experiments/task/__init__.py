"""What a task teaches once: recordings of real models for the screening and the probe, and their tables."""
