"""How far a run works off its stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_fds.stream.run.linger import Linger


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a run works off its stream.

    Attributes:
        max_batches: Maximum number of batches in one Spark application.
        max_in_all: Maximum number of batches of the run; ``None``: no limit.
        retry: Whether the run may have worked before; see :meth:`StreamSession.begin`.
        stop_after_ms: No batch is started after this time (milliseconds since the epoch); ``None``: no limit.
        linger: How the run waits for more when it has loaded everything; ``None``: it does not.
    """

    max_batches: int = 200
    max_in_all: int | None = None
    retry: bool = False
    stop_after_ms: int | None = None
    linger: Linger | None = None
