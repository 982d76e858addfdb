"""The sink argument of an operator: a value, or a dict from an XCom."""

from __future__ import annotations

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import Sink, sink_from_dict


def coerce_sink(value: object) -> Sink:
    """Return ``value`` if it is a sink; build a sink from a dict: ``to_dict()``, or arguments of ``DeltaTableSink``.

    Raises:
        ConfigurationError: The value is anything else, or a dict that does not describe a sink.
    """
    if isinstance(value, Sink):
        return value
    if not isinstance(value, dict):
        raise ConfigurationError(
            "sink must be a DeltaTableSink, DeltaMergeSink, DeltaReplaceSink or ForeachBatchSink, or a dict of its "
            f"arguments, got {type(value).__name__}: {value!r}.",
            reason=Reason.INVALID_OPTION,
        )
    try:
        return sink_from_dict({"kind": "delta_append", **value})
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"invalid sink {value!r}: {error}.", reason=Reason.INVALID_OPTION) from error
