"""An HTTP server that speaks OpenAI's API (extra ``serve``): chat completions, completions and responses.

The command is ``soft-reasoning serve``. In reading order: ``settings`` (options and model names), ``app``
(addresses, streaming, the process), ``requests`` (what a request may hold, and the call that it becomes),
``service`` (solves requests within the limits) and ``responses`` (what a solution becomes).
"""
