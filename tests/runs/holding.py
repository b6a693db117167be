"""The fake engine, slower, with memory to tell of."""

import time

from soft_reasoning.engines.fake import FakeEngine


class Holding(FakeEngine):
    """Says that it holds 100 bytes of keys and values."""

    peak_bytes = used_bytes = {"kv": 100}

    def add(self, requests):
        time.sleep(0.5)
        return super().add(requests)
