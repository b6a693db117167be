"""Tables and plots of finished runs and sweeps, and the analysis of neurons."""
