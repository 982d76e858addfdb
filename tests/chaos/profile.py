"""The settings of a session of these tests."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Final

#: ``short``: some minutes, for every run of the tests. ``long``: all kinds at all points, and all pairs.
PROFILE: Final = os.environ.get("FDS_CHAOS", "short")
IS_LONG: Final = PROFILE == "long"

#: How many pairs of points; 0 means all of them.
PAIRS: Final = int(os.environ.get("FDS_CHAOS_PAIRS") or 0) if IS_LONG else 3

#: File with what each test has shown, beside the page, and whether recent results of this seed and these pairs count.
RESULTS: Final = os.environ.get("FDS_CHAOS_RESULTS")
RESUMES: Final = bool(os.environ.get("FDS_CHAOS_RESUME"))


def _seed_of_results() -> int:
    """Return the seed of results that count, ``0`` if there are none: those of another seed would not."""
    if not RESUMES or RESULTS is None or not (file := Path(RESULTS)).exists():
        return 0
    return next((int(said["seed"]) for said in json.loads(file.read_text(encoding="utf-8")).values()), 0)


SEED: Final = (
    int(os.environ.get("FDS_CHAOS_SEED") or 0) or _seed_of_results() or random.SystemRandom().randint(1, 10**6)
)

#: The page that gets the table of a session without failures.
PAGE: Final = os.environ.get("FDS_CHAOS_PAGE")
