"""What a task reads and writes, as values: a table at a version, and both ends of a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.delta.storage.open import canonical_uri
from airflow_provider_fds.sinks import DeltaSink
from airflow_provider_fds.table_names import is_name_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream import DeltaStream


@dataclass(frozen=True)
class TableUse:
    """A table that a task reads or writes.

    Attributes:
        uri: Its encoded URI, with scheme.
        version: Its version after the work, ``None`` if unknown.
        metadata: Its metadata in force at that version, ``None`` if unknown.
        alias: Encoded URI under which OpenLineage's Spark agent knows the table, if it is another one.
    """

    uri: str
    version: int | None = None
    metadata: Metadata | None = None
    alias: str | None = None


@dataclass(frozen=True)
class Lineage:
    """What a task reads and writes.

    Attributes:
        stream: The stream.
        source: The table it reads.
        sinks: The tables it writes, as far as they are known.
        sink: Where the batches go, ``None`` if only the user's job knows.
        uuid: The stream's UUID, ``None`` if unknown.
        result: What was committed, in the form of the task's XCom; empty before that.
    """

    stream: DeltaStream
    source: TableUse
    sinks: tuple[TableUse, ...] = ()
    sink: Sink | None = None
    uuid: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def planned(cls, stream: DeltaStream, sink: Sink | None) -> Lineage:
        """Return what is known before anything is read."""
        tables = () if sink is None else sink.known_tables
        uses = tuple(TableUse(uri if is_name_uri(uri) else canonical_uri(uri)) for uri in tables)
        return cls(stream, TableUse(stream.table_uri), uses, sink)

    @property
    def maps_columns(self) -> bool:
        """Whether each column of the sink that the source has too is a copy of that column."""
        return isinstance(self.sink, DeltaSink) and self.sink.transform is None
