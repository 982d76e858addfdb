"""The asset event of a sink: reports what was committed, in the transaction that marks the task a success."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import Asset, AssetAlias

from airflow_provider_fds.delta.storage.open import canonical_uri
from airflow_provider_fds.operators.lineage.asset_partitions import add_partitions
from airflow_provider_fds.operators.lineage.outlets import is_alert_outlet
from airflow_provider_fds.schemes import with_plain_scheme
from airflow_provider_fds.table_names import is_name_uri

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

#: Fields of a result that are unknown if the event covers more than the run's own batches.
_COUNTS = ("rows", "files", "bytes", "rows_read", "files_written", "bytes_written", "seconds")
#: Likewise, of a stream with an ``event_time_column``, and of one with expectations.
_OTHER_COUNTS = ("event_time_min", "event_time_max", "rows_rejected", "failed_rows")
#: How many of the last events are read, one number after the other.
_LAST_EVENTS: Final = (20, 500, 5000)


def asset_uri(sink_uri: str) -> str:
    """Return the asset URI of a sink: ``s3a`` and ``s3n`` become ``s3``, a path becomes a ``file`` URI.

    Airflow compares URIs as strings, so one table with two spellings would be two assets. A table that is given by its
    name has the URI of that name, as a stream that reads it.
    """
    return sink_uri if is_name_uri(sink_uri) else with_plain_scheme(canonical_uri(sink_uri))


def emit(
    operator: Any, context: Any, extra: Mapping[str, Any] | None, sink_uri: str | None, partitions: Sequence[str] = ()
) -> None:
    """Attach ``extra`` to the events that Airflow writes when the task succeeds; withhold them if it is ``None``.

    Assets that the user declared as outlets get it, once for each partition key if there are any; an alias gets an
    event of the sink's own asset, if the sink is known.
    """
    if extra is None:
        operator.log.info("These rows have had their asset event; there is no other.")
        withhold(operator)
        return
    events = context["outlet_events"]
    for outlet in operator.outlets:
        if is_alert_outlet(outlet):
            continue
        if isinstance(outlet, AssetAlias):
            if sink_uri is not None:
                events[outlet].add(Asset(asset_uri(sink_uri)), extra=dict(extra))
        elif isinstance(outlet, Asset):
            events[outlet].extra.update(extra)
            add_partitions(events[outlet], partitions)


def emit_streams(operator: Any, context: Any, extras: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Attach an event for each stream of a fleet that has loaded something to those that Airflow writes on success.

    An alias gets an event of each sink's own asset. A declared asset gets the event of the stream that loads into it,
    and none if that has loaded nothing: a consumer must not be woken for nothing.

    Args:
        operator: The operator.
        context: The task's context.
        extras: By the asset URI of the sink, one ``extra`` for each stream that has loaded into it; empty for a sink
            of the fleet into which nothing was loaded.
    """
    events = context["outlet_events"]
    for outlet in operator.outlets:
        if isinstance(outlet, AssetAlias) and not is_alert_outlet(outlet):
            for uri, found in extras.items():
                for extra in found:
                    events[outlet].add(Asset(uri), extra=dict(extra))
        elif isinstance(outlet, Asset) and extras.get(outlet.uri):
            events[outlet].extra.update(extras[outlet.uri][-1])
    operator.outlets = [
        outlet for outlet in operator.outlets if not isinstance(outlet, Asset) or extras.get(outlet.uri, [{}])
    ]


def withhold(operator: Any) -> None:
    """Let the task succeed without an event: a consumer must not be woken for nothing."""
    operator.outlets = [outlet for outlet in operator.outlets if isinstance(outlet, AssetAlias)]


def uncovered(
    operator: Any, extra: Mapping[str, Any], sink_uri: str | None, *, epoch_start: str | None
) -> dict[str, Any] | None:
    """Return ``extra``, extended to everything that no event has covered yet; ``None`` if an event has covered it.

    A run that is cleared after its success commits nothing again, and has had its event: a second one would let
    consumers load the same rows twice. A run that committed batches and then failed for good has emitted nothing, so
    the next event covers its batches too. The counts are then ``None``, because they would not describe this run alone.
    If Airflow cannot return the last event, ``extra`` stays as it is.

    Args:
        operator: The operator, for its outlets; ``None``: the events are those of the sink's own asset.
        extra: The run's own result.
        sink_uri: URI of the sink, if known.
        epoch_start: Offset at which the epoch began, for a stream that reads by offset.
    """
    asset = None if operator is None else next((one for one in operator.outlets if isinstance(one, Asset)), None)
    if asset is None and sink_uri is not None:
        asset = Asset(asset_uri(sink_uri))
    if asset is None:
        return dict(extra)
    try:
        last = _last_event(asset, extra)
    except Exception:  # reading the last event is optional, so no error matters
        log.debug("Cannot read the last event of asset %s.", asset.uri, exc_info=True)
        return dict(extra)
    if last is not None and _order(last) >= _order(extra):
        return None
    if _is_interval(extra):
        return dict(extra)
    first = 0 if last is None else int(last["last_batch_id"]) + 1
    start = epoch_start if last is None else str(last["end"])
    if first >= extra["first_batch_id"] or start is None:
        return dict(extra)
    from airflow_provider_fds.source.offset import Offset

    return {
        **extra,
        **dict.fromkeys(_COUNTS),
        **{name: None for name in _OTHER_COUNTS if name in extra},
        "batches": int(extra["last_batch_id"]) - first + 1,
        "first_batch_id": first,
        "first_version": Offset.from_json(start).version,
        "start": start,
    }


def _is_interval(extra: Mapping[str, Any]) -> bool:
    return "interval_start" in extra


def _subject(extra: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what an event is about: the epoch of a stream, or one of its data intervals."""
    names = ("stream", "interval_start", "interval_end") if _is_interval(extra) else ("stream", "epoch")
    return tuple(extra.get(name) for name in names)


def _order(extra: Mapping[str, Any]) -> int:
    """Return which load of the subject an event is about. An interval that is loaded anew gets a new generation."""
    return int(extra["generation" if _is_interval(extra) else "last_batch_id"])


def _last_event(asset: Asset, extra: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the extra of the newest event about the same subject, ``None`` if the asset has none.

    Other streams may have events of the same asset, and a load has one for each of its partitions, so more and more of
    the last events are read.

    Raises:
        LookupError: It is not among the last ones, and there are too many to read all.
    """
    from airflow.sdk.execution_time.context import InletEventsAccessors

    needed = {"generation"} if _is_interval(extra) else {"last_batch_id", "end"}
    for number in _LAST_EVENTS:
        events = InletEventsAccessors([asset])[asset]
        has_order = hasattr(events, "ascending")
        newest_first = list(events.ascending(ascending=False).limit(number) if has_order else reversed(list(events)))
        for event in newest_first:
            found: Mapping[str, Any] = event.extra or {}
            if _subject(found) == _subject(extra) and needed <= found.keys():
                return found
        if not has_order or len(newest_first) < number:
            return None
    raise LookupError(f"none of the last {_LAST_EVENTS[-1]} events is of stream {extra['stream']!r}")
