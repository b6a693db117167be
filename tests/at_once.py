"""An engine of a test that knows each answer at once."""

from soft_reasoning.engines.queue import QueueEngine


class AtOnce(QueueEngine):
    """Completes all requests in one step: ``complete(requests)`` returns their completions."""

    def begin(self, requests):
        QueueEngine.begin(self, requests)

    def drop(self, tickets):
        QueueEngine.drop(self, tickets)

    def advance(self):
        requests = [prepared.request for prepared in self.queued.values()]
        return list(zip(self.queued, self.complete(requests), strict=True))
