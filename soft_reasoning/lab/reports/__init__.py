"""Tables, plots and pages of finished runs, read from their folders; nothing here runs a model."""
