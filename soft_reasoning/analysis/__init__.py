"""Tables and plots of finished runs and sweeps."""
