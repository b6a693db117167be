"""An HTTP server whose requests and answers are those of OpenAI's chat completions (extra ``serve``).

In reading order: ``settings``, ``command`` (the configuration and the process), ``app`` (addresses),
``service`` (which requests are in work, and how they end), ``requests`` (what a request may hold), ``names``
(of models), ``translation`` (a request to a call of ``SoftReasoner.asolve``, and its solution to choices),
``responses``, ``usage``, ``tokens`` (log-probabilities), ``streaming`` and ``errors``.
"""
