"""A user's options, from Python or the command line, become a configuration and the parts it names."""
