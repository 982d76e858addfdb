"""Sinks as values: declared in a DAG file, performed on the Spark driver. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_S3_SCHEMES = ("s3", "s3a", "s3n")


@dataclass(frozen=True)
class DeltaTableSink:
    """Appends each batch to a Delta table, once.

    The table is created by the first batch if it is not there. Source columns keep their names; the two
    columns of provenance that a batch carries are not written unless asked for. Rows of the change data feed are
    appended as they are, with their ``_change_type``.

    Args:
        uri: URI or path of the sink table.
        partition_by: Partition columns for a table that the first batch creates; ignored by an existing one.
        provenance: Also write ``_source_version`` (long) and ``_source_timestamp`` (timestamp) per row.
        merge_schema: Let additive changes of the source's schema pass on to the sink.
        allow_single_driver_s3: Accept Delta's default S3 log store, which loses commits when two drivers write
            at once. Only say so when nothing else ever writes to this table.
        storage_conn_id: Airflow connection for the sink's storage, if it is not the stream's.
    """

    uri: str
    partition_by: tuple[str, ...] = ()
    provenance: bool = False
    merge_schema: bool = False
    allow_single_driver_s3: bool = False
    storage_conn_id: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.uri, str) or not self.uri.strip():
            raise ValueError(f"DeltaTableSink: uri must be the URI or path of a Delta table, got {self.uri!r}")
        if re.match(r"[A-Za-z0-9+.-]+://([^/]*:[^/]*@|.*[?])", self.uri):
            raise ValueError(
                "DeltaTableSink: uri has a user and password before the host, or a query, and everybody who sees the "
                "DAG would see it; put credentials into the Airflow connection (storage_conn_id) and Spark's settings"
            )
        if isinstance(self.partition_by, (str, bytes)):  # type: ignore[unreachable]
            raise ValueError(  # noqa: TRY004  # one kind of error for what cannot work
                f"DeltaTableSink: partition_by must be a list of columns, got {self.partition_by!r}"
            )
        object.__setattr__(self, "partition_by", tuple(self.partition_by))

    @property
    def kind(self) -> str:
        """How the sink is named in the ledger."""
        return "delta_append"

    @property
    def writes_rows_as_they_are(self) -> bool:
        """Whether the rows written equal the rows of the batch, so that the log's own count can be checked."""
        return True

    def identity(self) -> dict[str, str]:
        """Return what binds the stream to this sink: another identity is another sink."""
        return {"kind": self.kind, "target": self.uri.rstrip("/")}

    def to_dict(self) -> dict[str, Any]:
        """Return the sink as JSON-able values, without anything secret."""
        return {"kind": self.kind, **asdict(self)}

    def rendered(self, render: Callable[[str], str]) -> DeltaTableSink:
        """Return a copy whose ``uri`` went through ``render`` (Airflow's templates)."""
        return replace(self, uri=render(self.uri))

    @property
    def is_on_s3(self) -> bool:
        """Whether the table lies on S3 or something that speaks its protocol."""
        return self.uri.split("://", 1)[0].lower() in _S3_SCHEMES

    def serialize(self) -> dict[str, Any]:
        """Return what Airflow shows of the sink in a serialised DAG."""
        return self.to_dict()


def sink_from_dict(value: dict[str, Any]) -> DeltaTableSink:
    """Build a sink from :meth:`DeltaTableSink.to_dict`. Raises ``ValueError`` for a kind it does not know."""
    fields = dict(value)
    kind = fields.pop("kind", None)
    if kind != "delta_append":
        raise ValueError(f"sink kind {kind!r} is not known to this version of FDS, it knows 'delta_append'")
    return DeltaTableSink(**fields)
