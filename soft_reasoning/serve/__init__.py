"""An HTTP server that speaks OpenAI's API (extra ``serve``): chat completions and completions.

The command is ``soft-reasoning serve``. In reading order: ``settings`` (options), ``app`` (routes, streaming,
the process), ``requests`` (bodies of requests, and their questions), ``service`` (solves requests within the
limits) and ``responses`` (bodies and events with solutions).
"""
