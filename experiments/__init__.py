"""Scripts and sweeps behind the measured results, the bundled model and the tables of the paper."""
