"""``DeltaWatermarkTrigger``: wait until the watermark of a stream reaches a time."""

from __future__ import annotations

from typing import Any

from airflow_provider_fds.hooks.stream_context import reading_context
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.connected_stream import ConnectedStream
from airflow_provider_fds.stream.polling.watermark import WatermarkPoller
from airflow_provider_fds.triggers.delta_table_version import DeltaTableVersionTrigger


class DeltaWatermarkTrigger(DeltaTableVersionTrigger):
    """Fires once, when the runs of a stream have committed rows up to a time, or the stream is finished.

    A poll reads new entries of the ledger in staging, and nothing of the table. Events and the handling of refused
    polls are the same as in :class:`DeltaTableVersionTrigger`; ``version`` is the last one that is committed. The
    trigger writes nothing.

    Args:
        at: The time that the watermark must reach, ISO 8601 with a zone.
        arguments: Those of :class:`DeltaTableVersionTrigger`.
    """

    def __init__(self, *, at: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.at = at

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and all arguments that another triggerer needs to continue."""
        _, arguments = super().serialize()
        return "airflow_provider_fds.triggers.delta_watermark.DeltaWatermarkTrigger", {**arguments, "at": self.at}

    @property
    def _address(self) -> None:
        """The table is not polled."""

    def _poller(self) -> tuple[WatermarkPoller, None]:
        stream = DeltaStream.from_dict(self.stream)
        context = reading_context(stream, staging=self.staging, deployment=self.deployment)
        return WatermarkPoller(ConnectedStream(stream, context), self.at), None
