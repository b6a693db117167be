"""``report.html``: a run as a page that opens from disk, without a network."""
