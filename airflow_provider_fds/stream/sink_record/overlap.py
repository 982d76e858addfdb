"""Two streams of one table that append to one sink: their ranges must not overlap, or its rows are duplicated.

Two sources tell what other streams load: the commits in the sink name the range of each batch, and the ledgers of these
streams, and of the stream's own backfills, tell what is still to come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.errors import BatchRejectedError, ConfigurationError
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaReplaceSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planning.start import SnapshotStart, resolve_start
from airflow_provider_fds.stream.declaration.delta_stream import NAME_PATTERN
from airflow_provider_fds.stream.sink_record.live_start import starts_of
from airflow_provider_fds.stream.sink_record.sink_traces import loaded_by_others

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.source.planning.end import StreamEnd
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions that a stream loads, both ends inclusive; ``last`` is ``None`` if it has no end.

    Attributes:
        stream: Name of the stream.
        source: What tells so, for a message.
    """

    first: int
    last: int | None
    stream: str = ""
    source: str = ""

    def overlaps(self, other: VersionRange) -> bool:
        """Whether a version is in both."""
        return (other.last is None or self.first <= other.last) and (self.last is None or other.first <= self.last)

    def describe(self) -> str:
        """Return the range in words."""
        if self.last is None:
            return f"versions from {self.first} on"
        return describe_range(self.first, self.last)


def refuse_overlap_of_new(connected: ConnectedStream, sink: Sink, start: Offset | None) -> None:
    """Refuse a backfill that does not exist yet, before it has a ledger; see :func:`refuse_overlap`.

    A refused range leaves nothing behind that would count against other ranges. Only streams that share a name, or that
    have written to the sink, are compared, so the ledger of another refused stream does no harm.

    Args:
        connected: The stream.
        sink: Its sink.
        start: Where it starts, instead of its start options.
    """
    if connected.stream.backfill_range is None or not _concerns(connected, sink):
        return
    others = list(_others(connected, sink, connected.log.state_at(connected.log.latest()).metadata.id))
    if not others:
        return
    found: Offset | SnapshotStart | None = start or resolve_start(connected.log, connected.stream.options)
    if found is not None:
        from airflow_provider_fds.source.planning.end import known_end

        offset = found.offset if isinstance(found, SnapshotStart) else found
        _refuse(connected, sink, _own(offset, known_end(connected.log, connected.stream.options, offset)), others)


def refuse_overlap(connected: ConnectedStream, state: StreamState, sink: Sink, end: StreamEnd | None) -> None:
    """Refuse a stream whose versions another stream loads, or has loaded, into the same sink.

    Args:
        connected: The stream, opened and bound, so that another stream that does the same at this moment finds it.
        state: Its state.
        sink: Its sink.
        end: Its end, if it is known.

    Raises:
        ConfigurationError: Names the other stream, both ranges, and what to do.
    """
    if state.position is None or not _concerns(connected, sink):
        return
    position = Offset.from_json(state.position)
    others = list(_others(connected, sink, position.table_id))
    _refuse_doubled(connected, sink)
    _refuse(connected, sink, _own(position, end), others)


def _refuse_doubled(connected: ConnectedStream, sink: Sink) -> None:
    """Refuse to plan for a sink that has rows of the stream twice: what is planned could not land."""
    name = connected.stream.name
    for uri in sink.known_tables if sink.kind == "delta_append" else ():
        found = connected.loaded_in[uri].overlap(connected.state.uuid, (), sink.others)
        if found is not None:
            mine, other, theirs = found
            from airflow_provider_fds.batch.sink.doubled_rows import describe_doubled

            raise BatchRejectedError(describe_doubled(name, mine, other, theirs, uri), reason=Reason.SINK_HAS_ROWS)


def refuse_overlap_of_interval(
    connected: ConnectedStream, sink: Sink | None, first: int, last: int, table_id: str
) -> None:
    """Refuse a data interval whose versions another stream appends, or has appended, to the same sink.

    Each interval is checked, because intervals come in any order.

    Args:
        connected: The stream, bound to the sink.
        sink: The sink.
        first: First version of the interval.
        last: Last version of the interval; before ``first`` if the interval has no versions.
        table_id: Id of the source table.

    Raises:
        ConfigurationError: Names the other stream, both ranges, and what to do.
    """
    if sink is None or last < first or not _concerns(connected, sink):
        return
    _refuse(connected, sink, VersionRange(first, last), list(_others(connected, sink, table_id)))


def _concerns(connected: ConnectedStream, sink: Sink) -> bool:
    """Whether rows could be duplicated, or replace others, or a sink would take those of a backfill for newer ones."""
    if connected.stream.allow_overlap or sink.table_uri is None:
        return False
    if isinstance(sink, DeltaReplaceSink) and sink.replaces_by_version:
        return True
    return sink.kind == "delta_append" or (sink.needs_order and connected.stream.backfill_range is not None)


def _refuse(connected: ConnectedStream, sink: Sink, own: VersionRange, others: list[VersionRange]) -> None:
    name, table = connected.stream.name, connected.log.table_uri
    if sink.needs_order and others:
        raise ConfigurationError(
            f"Stream {name!r} would merge {own.describe()} of {table} into the sink {sink.describe()}, to which "
            f"stream {others[0].stream!r} also merges ({others[0].source}): older rows would replace newer ones. "
            f"Use another sink, or rewind stream {others[0].stream!r}.",
            table=table,
            version=own.first,
            reason=Reason.RANGES_OVERLAP,
        )
    other = next((other for other in others if own.overlaps(other)), None)
    if other is None:
        return
    raise ConfigurationError(
        f"Stream {name!r} would append {own.describe()} of {table} to the sink {sink.describe()}, but stream "
        f"{other.stream!r} already appends {other.describe()} ({other.source}): rows would be duplicated, or one "
        "stream would replace those of the other. Choose "
        f"a range that does not overlap, or another sink (with `fds replan {name} --new-sink --why …`); "
        "if the two load different rows, or the sink no longer has "
        "those rows, set allow_overlap=True on this stream (`fds`: --allow-overlap).",
        table=table,
        version=max(own.first, other.first),
        reason=Reason.RANGES_OVERLAP,
    )


def _own(position: Offset, end: StreamEnd | None) -> VersionRange:
    return VersionRange(_first(position), None if end is None else end.version)


def _others(connected: ConnectedStream, sink: Sink, table_id: str) -> Iterator[VersionRange]:
    """Yield what other streams of the table load into the sink."""
    assert sink.table_uri is not None  # noqa: S101  # the callers have checked it
    target = connected.sink_target(sink.table_uri)
    # a stream of the same name with another ledger is refused for that, whatever it loads
    loaded = [stream for stream in loaded_by_others(connected, sink) if stream.name != connected.stream.name]
    for name in dict.fromkeys([*_family(connected), *(stream.name for stream in loaded)]):
        if name != connected.stream.name and NAME_PATTERN.fullmatch(name):
            yield from _of_ledger(connected, name, target, table_id)
    for stream in loaded:
        for piece in stream.pieces:
            if piece.table_id == table_id:
                told = f"version {piece.sink_version} of the sink has a batch of it"
                yield VersionRange(*piece.versions, stream.name, told)


def _of_ledger(connected: ConnectedStream, name: str, target: str, table_id: str) -> Iterator[VersionRange]:
    """Yield what the ledger of another stream says that it loads into the sink, if it has begun."""
    ledger = Ledger(connected.staging, name)
    state = ledger.find()
    if state.sink is None or state.sink.target != target or state.reads_by_interval:
        return
    starts = [start for start in starts_of(ledger) if start.table_id == table_id]
    if not starts:
        return
    last = _last(state, starts[-1])
    if state.retired is not None:
        # nothing follows what it has loaded, which the sink's commits show
        return
    first = min(map(_first, starts))
    if last is None or first <= last:
        yield VersionRange(first, last, name, "according to its ledger")


def _last(state: StreamState, start: Offset) -> int | None:
    """Return the last version of a stream, or ``None`` if it has no end or the ledger does not know it."""
    if state.ended is not None:
        return state.ended.version
    options = state.range_options or {}
    if "ending_version" in options:
        return int(options["ending_version"])
    if "version_as_of" in options or "timestamp_as_of" in options:
        return start.version
    return None


def _family(connected: ConnectedStream) -> Iterator[str]:
    """Yield the live stream and its backfills, whether or not they have written to the sink."""
    backfill = connected.stream.backfill_range
    live = connected.stream.name if backfill is None else backfill.of
    for name in connected.staging.list_folders(""):
        if name == live or name.startswith(f"{live}.bf."):
            yield name


def _first(start: Offset) -> int:
    # a snapshot has the rows of all versions before it
    return 0 if start.is_initial_snapshot else start.version
