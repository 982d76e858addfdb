"""``DeltaIntervalTrigger``: wait until a data interval of a Delta table is complete, with one request per poll."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow_provider_fds.hooks.stream_context import reading_context
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.polling.interval_poll import IntervalPoller
from airflow_provider_fds.triggers.delta_table_version import DeltaTableVersionTrigger


class DeltaIntervalTrigger(DeltaTableVersionTrigger):
    """Fires once, when no more commits can fall into a data interval of a table.

    It fires when a commit at or after the end of the interval exists, or when ``grace`` has passed since the end.
    Polling, events and the handling of refused polls are the same as in :class:`DeltaTableVersionTrigger`. The trigger
    writes nothing; the run that loads the interval determines which versions it contains.

    Args:
        interval_end: End of the interval (exclusive), ISO 8601 with a zone.
        grace: Seconds after the end; ``None`` to wait for a commit.
        arguments: Those of :class:`DeltaTableVersionTrigger`.
    """

    def __init__(self, *, interval_end: str, grace: float | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.interval_end = interval_end
        self.grace = grace

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and all arguments that another triggerer needs to continue."""
        _, arguments = super().serialize()
        return (
            "airflow_provider_fds.triggers.delta_interval.DeltaIntervalTrigger",
            {**arguments, "interval_end": self.interval_end, "grace": self.grace},
        )

    def _poller(self) -> tuple[IntervalPoller, None]:
        stream = DeltaStream.from_dict(self.stream)
        stream_context = reading_context(stream, staging=self.staging, deployment=self.deployment)
        storage = stream_context.open_table(stream.table)
        grace = None if self.grace is None else timedelta(seconds=self.grace)
        return IntervalPoller(storage, datetime.fromisoformat(self.interval_end), grace), None
