"""A store of completions: what an engine has generated once need not be generated again."""
