"""``report.html``: runs, comparisons and sweeps as pages that open from disk, without a network."""
