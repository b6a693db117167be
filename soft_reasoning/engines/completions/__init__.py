"""A store of completions: what an engine has completed once, it need not generate again."""
