"""The next job of a spark-submit that lingers: a file beside its job spec. Standard library only, Python 3.9 syntax.

A worker starts spark-submit with the first job of its run, and hands it each later one in this file, so nothing has to
listen. The driver does what a job says: it calls functions and writes tables. So the file counts only with a code that
the key proves, which spark-submit gets as a secret setting: others who can write to staging cannot give it work.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP045

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Optional

#: The Spark setting with the key; its name makes Spark and FDS treat it as a secret.
KEY_SETTING = "spark.fds.linger.secretKey"


def next_job_name(attempt_id: str) -> str:
    """Return the name of the file with the job after that of an attempt; it is in the folder of the attempt's job."""
    return f"{attempt_id}.next.json"


def next_job(attempt_id: str, spec_uri: Optional[str], key: str) -> bytes:
    """Return the content of the file.

    Args:
        attempt_id: The attempt whose job is done.
        spec_uri: URI of the next job spec, as Spark reads it; ``None``: there is none, and spark-submit ends.
        key: The key of the application.
    """
    return json.dumps({"spec_uri": spec_uri, "code": _code(attempt_id, spec_uri, key)}).encode()


def read_next_job(data: bytes, attempt_id: str, key: str) -> Optional[str]:
    """Return the URI of the next job spec; the inverse of :func:`next_job`.

    Raises:
        ValueError: Somebody without the key has written it.
    """
    try:
        found = json.loads(data)
        spec_uri, code = found["spec_uri"], found["code"]
    except (ValueError, TypeError, KeyError, RecursionError):
        spec_uri, code = "", ""
    is_uri = spec_uri is None or isinstance(spec_uri, str)
    if not is_uri or not isinstance(code, str) or not hmac.compare_digest(code, _code(attempt_id, spec_uri, key)):
        raise ValueError(f"the next job of attempt {attempt_id} was not written by the run that started this driver")
    return spec_uri  # type: ignore[no-any-return]


def _code(attempt_id: str, spec_uri: Optional[str], key: str) -> str:
    text = json.dumps([attempt_id, spec_uri])
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
