"""A function of a user that works until its process is ended; the driver imports it from ``py_files``."""

import os
import time
from pathlib import Path


def work(rows, batch):
    """Write down the process ten times a second, for ten minutes at most."""
    alive = Path(os.environ["FDS_TEST_LAKE"], "alive")
    for _ in range(6000):
        with alive.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.1)
