"""What became of the streams of a fleet so far in its run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.fleet.result import StreamOutcome
from airflow_provider_fds.stream.attempt.batch_failure import with_ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.errors import BatchFailedError
    from airflow_provider_fds.fleet.result import FleetOutcome
    from airflow_provider_fds.fleet.value import FleetStream

logger = logging.getLogger(__name__)

#: Why a stream was left.
STOPPED: Final = "It was not started, because another stream of the fleet failed; the next run loads it."
OUT_OF_TIME: Final = "The time limit is reached; the next run loads the rest."


def with_last_line(failure: BatchFailedError, spark_error: Exception | None) -> FdsError:
    """Add how Spark ended to the error of a batch that is not reported: the first line and the last one."""
    lines = [line.strip() for line in str(spark_error or "").splitlines()]
    ending = " ".join([*lines[:1], *lines[1:][-1:]])
    return with_ending(failure, ending or None)


class Outcomes:
    """The outcome of each stream that has ended, in one round or in several.

    Attributes:
        has_failed: Whether a stream has failed.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, StreamOutcome] = {}
        self.has_failed = False

    @property
    def has_loaded(self) -> bool:
        """Whether a stream has loaded something."""
        return any(one.outcome == "loaded" for one in self._by_name.values())

    def end(self, stream: FleetStream, outcome: FleetOutcome, **facts: object) -> None:
        """Record what became of a stream, after what became of it in earlier rounds."""
        ended = StreamOutcome(stream=stream.stream.name, outcome=outcome, **facts)  # type: ignore[arg-type]
        if (before := self._by_name.get(ended.stream)) is not None:
            ended = ended.after(before)
        self._by_name[ended.stream] = ended
        if ended.error is not None:
            self.has_failed = True
            is_known = isinstance(ended.error, FdsError)
            logger.error("Stream %s failed: %s", ended.stream, ended.error, exc_info=None if is_known else ended.error)
        elif outcome in ("busy", "paused", "left"):
            logger.warning("Stream %s: %s", ended.stream, ended.reason)
        if ended.result is not None:
            logger.info("%s", ended.result.describe())

    def of(self, streams: Sequence[FleetStream]) -> tuple[StreamOutcome, ...]:
        """Return the outcomes of the streams that have ended, in their order."""
        return tuple(self._by_name[one.stream.name] for one in streams if one.stream.name in self._by_name)
