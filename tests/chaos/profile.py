"""What a session of these tests was asked for."""

from __future__ import annotations

import os
import random
from typing import Final

#: ``short``: some minutes, for every run of the tests. ``long``: all kinds at all points, and all pairs.
PROFILE: Final = os.environ.get("FDS_CHAOS", "short")
IS_LONG: Final = PROFILE == "long"

SEED: Final = int(os.environ.get("FDS_CHAOS_SEED") or 0) or random.SystemRandom().randint(1, 10**6)

#: How many pairs of points; 0 stands for all of them.
PAIRS: Final = int(os.environ.get("FDS_CHAOS_PAIRS") or 0) if IS_LONG else 3

#: File of what has passed in a session that was broken off: a later one with the same seed leaves it out and counts it.
RECORD: Final = os.environ.get("FDS_CHAOS_RECORD")

#: The page that gets the table of a session in which nothing failed.
PAGE: Final = os.environ.get("FDS_CHAOS_PAGE")
