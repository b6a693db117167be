"""An engine of a test that knows each answer at once."""

from soft_reasoning.engine.base import Engine


class AtOnce(Engine):
    """Completes all requests in one step: ``complete(requests)`` returns their completions."""

    def advance(self):
        requests = [row.request for row in self.queued.values()]
        return list(zip(self.queued, self.complete(requests), strict=True))
