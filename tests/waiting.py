"""Waiting for what happens in another thread or process; only the suite's time-out bounds it."""

import time


def wait_until(holds):
    while not holds():
        time.sleep(0.001)
