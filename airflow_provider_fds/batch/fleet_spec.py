"""The specification of a fleet: the jobs of many streams in one Spark application. Standard library, Python 3.9 syntax.

The Airflow side writes a :class:`FleetSpec` into staging; the driver (``spark/application/fleet_job.py``) reads it
and runs its jobs side by side. Each job has a spec, reports and a fate of its own.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP037, UP045

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple

from airflow_provider_fds.batch.checked_json import Rules, from_json, to_json
from airflow_provider_fds.batch.spec import check_digest

#: How a job of a fleet ended, as far as the driver knows:
#:   done    - it did everything its spec says, or its time limit was reached
#:   failed  - it stopped at a batch or fence that is not done
#:   left    - it was not started, because the fleet had to end
FLEET_OUTCOMES = ("done", "failed", "left")

_FLEET_DIGEST = re.compile(r"([^/]*)-([0-9a-f]{64})\.fleet\.json\Z")


@dataclass(frozen=True)
class FleetJob:
    """The job of one stream of a fleet.

    Attributes:
        stream: Name of the stream, unique within the fleet.
        spec: URI of its :class:`~.spec.JobSpec`, whose name has the digest.
        num_bytes: Planned bytes of all its batches; jobs with more begin earlier.
        timeout_seconds: How long one batch, or the fence, may take; ``None``: no limit.
    """

    stream: str
    spec: str
    num_bytes: int = 0
    timeout_seconds: Optional[float] = None


@dataclass(frozen=True)
class FleetSpec:
    """The task of one Spark application that works for many streams.

    Attributes:
        jobs: The job of each stream.
        parallelism: Number of batches that are worked on at the same time, 1 or more.
        progress: URI of the file in which the driver notes a :class:`FleetProgress`; ``None``: it notes none.
        max_bytes_in_flight: Planned bytes of the batches that are worked on at the same time. A larger batch runs
            alone. ``None``: no limit.
        stop_on_failure: Whether no batch is started after a job has failed.
        stop_after_ms: No batch is started after this time (milliseconds since the epoch), not even the first of a
            stream; ``None``: no limit.
        linger_seconds: How long spark-submit waits for the next jobs of the fleet once these are done; ``None``: it
            ends.
    """

    jobs: Tuple[FleetJob, ...]
    parallelism: int
    progress: Optional[str] = None
    max_bytes_in_flight: Optional[int] = None
    stop_on_failure: bool = False
    stop_after_ms: Optional[int] = None
    linger_seconds: Optional[float] = None

    def __post_init__(self) -> None:
        if self.parallelism < 1:
            raise ValueError(f"parallelism must be 1 or more, got {self.parallelism}")
        repeated = sorted(name for name, count in Counter(job.stream for job in self.jobs).items() if count > 1)
        if repeated:
            raise ValueError(f"the streams of a fleet must have different names; repeated: {', '.join(repeated)}")

    def to_json(self) -> bytes:
        """Return the spec as JSON."""
        return to_json(self, leave_out=() if self.linger_seconds else ("linger_seconds",))

    @classmethod
    def from_json(cls, text: "str | bytes") -> "FleetSpec":
        """Read a spec. Raises ``ValueError`` on another format."""
        return from_json(cls, text, "the fleet spec")

    @classmethod
    def from_file(cls, uri: str, data: bytes) -> "FleetSpec":
        """Read the spec at ``uri``, whose name determines what its bytes must be (:func:`fleet_name`).

        Raises:
            SpecChangedError: The name has no digest, or the bytes have another one.
            ValueError: Another format.
        """
        check_digest(uri, data, "fleet")
        return cls.from_json(data)


@dataclass(frozen=True)
class FleetProgress:
    """What the driver notes from time to time: which reports to look for. A hint, never evidence.

    Attributes:
        reports: By stream, how many reports of its job exist; streams without a report are left out.
        ended: By stream, how its job ended, one of :data:`FLEET_OUTCOMES`; jobs that have not ended are left out.
    """

    reports: Dict[str, int] = field(default_factory=dict)
    ended: Dict[str, str] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the note as JSON."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: "str | bytes") -> "FleetProgress":
        """Read a note. Raises ``ValueError`` on another format."""
        return from_json(cls, text, "the progress of the fleet", Rules(least=0, ignores_unknown=True))


def fleet_name(attempt_id: str, data: bytes) -> str:
    """Return the file name of a fleet spec, ``<attempt>-<SHA-256 of its bytes>.fleet.json``."""
    return f"{attempt_id}-{hashlib.sha256(data).hexdigest()}.fleet.json"


def progress_name(attempt_id: str) -> str:
    """Return the file name of the driver's notes about a fleet spec."""
    return f"{attempt_id}.progress.json"


def fleet_attempt(uri: str) -> str:
    """Return the attempt in the name of a fleet spec; empty if it is not such a name."""
    named = _FLEET_DIGEST.search(uri)
    return "" if named is None else named[1]


def is_fleet(uri: str) -> bool:
    """Whether the name is that of a fleet spec, not of a job spec."""
    return uri.endswith(".fleet.json")
