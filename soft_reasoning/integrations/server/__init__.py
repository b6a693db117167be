"""An HTTP server whose requests and answers are those of OpenAI's chat completions (extra ``serve``).

The command is ``soft-reasoning serve``. In reading order: ``settings``, ``running`` (the process), ``app``
(addresses), ``service`` (which requests are in work, and how they end), ``requests`` (what they may hold),
``names`` (of models), ``translation`` (a request to a call of ``SoftReasoner.asolve``, and its solution to
choices), ``responses``, ``usage``, ``tokens`` (log-probabilities), ``streaming`` and ``errors``.
"""
