"""Sinks that append to a Delta table, or replace a part of it. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from airflow_provider_fds.schemes import S3_SCHEMES
from airflow_provider_fds.sinks import options
from airflow_provider_fds.sinks.base import Delivery, RowSink, Target
from airflow_provider_fds.sinks.constants import PROVENANCE, constant_columns, jsonable
from airflow_provider_fds.sinks.expression import column_range, equal_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_provider_fds.sinks.constants import Constant

_SinkT = TypeVar("_SinkT", bound="DeltaSink")


#: The rows that a run of an interval has written, identified by their provenance.
_OWN_VERSIONS = "_source_version BETWEEN {first_version} AND {last_version}"
#: Fields of tables that are given by their names; those of others are the same as before there were any.
_OF_NAMES = ("catalog_conn_id", "create", "location")
_BY_VERSION_ALONE = re.compile(r"_source_version BETWEEN (?:\d+|\{first_version\}) AND (?:\d+|\{last_version\})")


@dataclass(frozen=True)
class DeltaSink(RowSink):
    """Base of all sinks that are Delta tables; use one of its subclasses.

    Args:
        uri: URI or path of the sink table; with ``catalog_conn_id``, its name.
        partition_by: Partition columns for a table that the first batch creates; ignored for an existing table.
        provenance: Also write ``_source_version`` (long) and ``_source_timestamp`` (timestamp) per row.
        merge_schema: Apply additive changes of the source's schema to the sink.
        allow_single_driver_s3: Accept Delta's default S3 log store, which loses commits when two drivers write at once.
            Set it only if nothing else ever writes to this table.
        storage_conn_id: Airflow connection for the sink's storage, if it is not the stream's.
        where: Write only the rows that satisfy this predicate over the batch's columns, including ``_commit_version``
            and ``_commit_timestamp``.
        transform: ``"pkg.module:function"``, a function on the driver. It takes the batch's DataFrame, after ``where``,
            and returns the DataFrame to write.
        columns: Columns to write, chosen from the result of ``transform``; default all.
        constant_columns: Columns to add to each row, with their values, such as ``{"source_system": "crm"}``. The type
            of a value determines the column's type: string, boolean, long, double, date, or timestamp for a datetime
            with a time zone. The sink's other arguments may name these columns, except ``where`` and ``columns``. A
            batch that has such a column itself is refused.
        target_file_size: Bytes, or a string like ``"128m"``: an extra shuffle combines a batch's small files into files
            of about this size. It never splits a file. See docs/sinks.md for measurements.
        cluster_by: Liquid clustering columns for a table that the first batch creates.
        properties: Table properties (``delta.…``) for a table that the first batch creates.
        like_source: What a table that the first batch creates takes from the source: ``"partition_by"``, its partition
            columns; ``"properties"``, the table properties that docs/sinks.md lists, except those in ``properties``.
        unsafe_sql: Allow predicates to call ``reflect`` and similar functions and to read other tables in subqueries.
            They run with the rights of the driver: set it only if nobody else can change the predicates.
        on_sink_overwritten: What to do if another writer has removed rows that the stream has loaded (an overwrite, a
            DELETE): ``"warn"`` or ``"fail"``. A RESTORE or REPLACE is always an error.
        other_streams: UUIDs of streams whose ledgers are in other staging folders and that also write to this table,
            with rows that this stream does not load.
        catalog_conn_id: Airflow connection of the catalog that knows where the table of this name is. A run asks it
            once, and then writes to the table by its URI.
        create: Whether the first batch creates a table that the catalog does not have, which is then registered there.
        location: URI of the folder of a table that is created; default: as the table's database has it. Unity Catalog
            has none.
    """

    target: ClassVar[Target] = "delta_table"
    delivery: ClassVar[Delivery] = "transaction"
    needs_order: ClassVar[bool] = False
    can_remove_rows: ClassVar[bool] = True

    uri: str
    partition_by: tuple[str, ...] = ()
    provenance: bool = False
    merge_schema: bool = False
    allow_single_driver_s3: bool = False
    storage_conn_id: str | None = None
    where: str | None = None
    transform: str | None = None
    columns: tuple[str, ...] = ()
    constant_columns: Mapping[str, Constant] = field(default_factory=dict, hash=False)
    target_file_size: int | str | None = None
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    like_source: tuple[str, ...] = ()
    unsafe_sql: bool = False
    on_sink_overwritten: str = "warn"
    other_streams: tuple[str, ...] = ()
    catalog_conn_id: str | None = None
    create: bool = False
    location: str | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not isinstance(self.uri, str) or not self.uri.strip():
            raise ValueError(f"{name}: uri must be the URI or path of a Delta table, got {self.uri!r}")
        options.flags(self)
        options.check_place(name, self.uri, self.catalog_conn_id, create=self.create, location=self.location)
        for listed in ("partition_by", "columns", "cluster_by"):
            object.__setattr__(self, listed, options.names(getattr(self, listed), f"{name}: {listed}"))
        constants = constant_columns(self.constant_columns, f"{name}: constant_columns", chosen=self.columns)
        object.__setattr__(self, "constant_columns", constants)
        object.__setattr__(self, "other_streams", options.uuids(self.other_streams, f"{name}: other_streams"))
        options.warn_or_fail(self.on_sink_overwritten, f"{name}: on_sink_overwritten")
        like_source = options.chosen(self.like_source, ("partition_by", "properties"), f"{name}: like_source")
        object.__setattr__(self, "like_source", like_source)
        partitioning = [
            *(["partition_by"] if self.partition_by else []),
            *(["cluster_by"] if self.cluster_by else []),
            *(["like_source=['partition_by']"] if "partition_by" in like_source else []),
        ]
        if len(partitioning) > 1:
            raise ValueError(f"{name}: {' and '.join(partitioning)} cannot be combined")
        if self.where is not None:
            options.predicate(self.where, f"{name}: where")
        if self.transform is not None:
            options.function(self.transform, f"{name}: transform")
        if self.target_file_size is not None:
            size = options.size_bytes(self.target_file_size, f"{name}: target_file_size")
            object.__setattr__(self, "target_file_size", size)
        properties = options.table_properties(self.properties, f"{name}: properties")
        object.__setattr__(self, "properties", properties)
        if not any(map(options.is_template, self._predicates().values())):
            self.check_predicates()

    def _predicates(self) -> dict[str, str]:
        return {} if self.where is None else {"where": self.where}

    def check_predicates(self) -> None:
        """Raise ``ValueError`` if a predicate is anything other than an expression over columns.

        With ``unsafe_sql`` nothing is checked. A template is checked after it has been rendered, and again on the
        driver.
        """
        for name, text in {} if self.unsafe_sql else self._predicates().items():
            options.columns_only(text, f"{type(self).__name__}: {name}")

    @property
    def table_uri(self) -> str:
        """What identifies the table without asking anybody: its URI or path, or its name in a catalog as a URI."""
        if self.catalog_conn_id is None or "{" in self.uri:
            return self.uri
        from airflow_provider_fds.table_names import name_uri

        return name_uri(self.catalog_conn_id, self.uri)

    @property
    def connection_id(self) -> str | None:
        """Airflow connection for the sink's storage; ``None`` to use the stream's connection."""
        return self.storage_conn_id

    @property
    def same_values(self) -> dict[str, str | int]:
        """Columns, in lower case, with the string or whole number that they have in each row that the sink writes."""
        # transform may change what where has compared
        found = equal_columns(self.where or "") if self.transform is None else {}
        for name, value in self.constant_columns.items():
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                found[name.lower()] = value
        return found

    @property
    def needs_log_store(self) -> bool:
        """Whether Delta's default log store would lose commits here, and the user has not accepted that."""
        return self.is_on_s3 and not self.allow_single_driver_s3

    @property
    def keeps_history(self) -> bool:
        """Whether a row that is no longer current is closed instead of removed."""
        return False

    def located(self, place: Callable[[str], str]) -> Self:
        """Return a copy whose ``uri`` is ``place(table_uri)``, without a catalog."""
        return replace(self, uri=place(self.table_uri), catalog_conn_id=None, create=False, location=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the sink as JSON-compatible values, without anything secret."""
        found = {**super().to_dict(), "constant_columns": jsonable(self.constant_columns)}
        return {key: value for key, value in found.items() if value or key not in _OF_NAMES}

    def identity(self) -> dict[str, str]:
        """Return the identity that a stream is bound to: sinks with different identities are different sinks."""
        return {"kind": self.kind, "target": self.table_uri.rstrip("/")}

    def describe(self) -> str:
        """Return where the rows go, for messages."""
        return super().describe() if self.catalog_conn_id is None else f"{self.uri} of catalog {self.catalog_conn_id!r}"

    def rendered(self, render: Callable[[str], str]) -> DeltaSink:
        """Return a copy with its template strings rendered by ``render`` (Airflow's templates)."""
        return _checked(replace(self, **_rendered(self, render)))

    @property
    def is_on_s3(self) -> bool:
        """Whether the table is on S3 or on a store that speaks its protocol."""
        return self.uri.split("://", 1)[0].lower() in S3_SCHEMES


@dataclass(frozen=True)
class DeltaAppendSink(DeltaSink):
    """Appends each batch to a Delta table exactly once.

    If the table does not exist, the first batch creates it. Source columns keep their names. The two provenance columns
    of a batch are written only on request. Rows of the change data feed are appended unchanged, with their
    ``_change_type``. The arguments are those of :class:`DeltaSink`.
    """

    kind: ClassVar[str] = "delta_append"

    @property
    def leaves_session_as_it_is(self) -> bool:
        """Whether a write changes no setting of the session and calls no user function."""
        return self.transform is None and self.target_file_size is None and not self.cluster_by


@dataclass(frozen=True)
class DeltaReplaceSink(DeltaSink):
    """Replaces a part of a Delta table with the rows of a data interval, in one transaction.

    It is for streams with ``read="data_interval"``: a repeated run replaces the rows of the previous run.

    Replaced rows (choose one):
        - With ``provenance=True`` alone: the rows of the interval's source versions (``_source_version BETWEEN
          {first_version} AND {last_version}``), which are exactly the rows that an earlier run of the interval wrote.
        - With ``replace_where``: the rows that satisfy the predicate. If the interval has no rows, they are only
          removed. Every row of the interval must satisfy the predicate; otherwise the run fails and writes nothing. An
          interval consists of the commits of its time, so a column that means something other than the commit time,
          such as an order date, works only if the source is written that way.
        - With ``dynamic_partition_overwrite``: the partitions that contain the interval's rows. An interval without
          rows then replaces nothing, and a partition that no longer has any row stays.

        A run that may replace rows of another stream is refused. Streams that share a sink need a column that tells
        them apart, see docs/data_intervals.md.

    Concurrency:
        Intervals that run in parallel write concurrently, without waiting for each other, if the predicate is on
        partition columns of the sink. Otherwise Delta lets one win, and the others repeat their write.

    Args:
        replace_where: Delta's ``replaceWhere``: a predicate over the sink's columns. May be a template, such as
            ``"day = '{{ data_interval_start | ds }}'"``; ``{first_version}`` and ``{last_version}`` (both inclusive)
            stand for the interval's versions of the source.
        dynamic_partition_overwrite: Delta's ``partitionOverwriteMode=dynamic``; the sink must be partitioned.

    The other arguments are those of :class:`DeltaSink`.
    """

    kind: ClassVar[str] = "delta_replace"
    replaces: ClassVar[bool] = True

    replace_where: str | None = None
    dynamic_partition_overwrite: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replace_where is not None:
            options.predicate(self.replace_where, "DeltaReplaceSink: replace_where")
        if self.replace_where is None and self.provenance and not self.dynamic_partition_overwrite:
            object.__setattr__(self, "replace_where", _OWN_VERSIONS)
        if self.cluster_by:
            raise ValueError(
                "DeltaReplaceSink: the run that creates the table cannot check cluster_by against replace_where. "
                "Create the table first (CREATE TABLE … CLUSTER BY)"
            )
        if (self.replace_where is None) is not bool(self.dynamic_partition_overwrite):
            raise ValueError(
                "DeltaReplaceSink: choose one way to say what a run replaces: provenance=True (the rows of its "
                "own versions), replace_where='…' (all rows that match a predicate) or "
                "dynamic_partition_overwrite=True (the partitions that contain its rows)"
            )

    @property
    def replaces_by_version(self) -> bool:
        """Whether the source versions alone say which rows are replaced, whichever stream wrote them."""
        return _BY_VERSION_ALONE.fullmatch(self.replace_where or "") is not None

    @property
    def same_values(self) -> dict[str, str | int]:
        """The constants, and columns that each row must have by ``replace_where``."""
        return {**equal_columns(self.replace_where or ""), **super().same_values}

    @property
    def replaced_rows(self) -> str:
        """The rows that a run replaces, in words."""
        if self.dynamic_partition_overwrite:
            return "the partitions that contain its rows"
        return f"the rows that match {self.replace_where}"

    def replaced_values(self, partition_columns: Iterable[str]) -> dict[str, str | int]:
        """Return columns, in lower case, with the value that they have in each row that a run replaces.

        Args:
            partition_columns: Those of the table.
        """
        if not self.dynamic_partition_overwrite:
            return equal_columns(self.replace_where or "")
        partitions = {name.lower() for name in partition_columns}
        return {name: value for name, value in self.same_values.items() if name in partitions}

    @property
    def replaced_versions(self) -> tuple[int, int] | None:
        """Versions of the source, both inclusive, that replaced rows can come from; ``None``: any."""
        return column_range(self.replace_where or "", PROVENANCE["_commit_version"])

    def may_hold_rows(self, first: int, last: int, *, is_first_load: bool) -> bool:
        """Whether a run without rows may have rows to remove; see :meth:`.base.Sink.may_hold_rows`."""
        if self.dynamic_partition_overwrite:
            return False
        return not self.replaces_by_version or (first <= last and not is_first_load)

    def rendered(self, render: Callable[[str], str]) -> DeltaReplaceSink:
        """Return a copy with ``uri``, ``location``, ``where`` and ``replace_where`` rendered by ``render``."""
        where = None if self.replace_where is None else render(self.replace_where)
        return _checked(replace(self, replace_where=where, **_rendered(self, render)))

    def _predicates(self) -> dict[str, str]:
        own = {} if self.replace_where is None else {"replace_where": self.replace_where}
        return {**super()._predicates(), **own}

    def for_versions(self, first: int, last: int) -> DeltaReplaceSink:
        """Return a copy for an interval of these versions, both inclusive; if it is empty, ``last < first``."""
        if self.replace_where is None:
            return self
        where = self.replace_where.replace("{first_version}", str(first)).replace("{last_version}", str(last))
        return replace(self, replace_where=where)


def _checked(sink: _SinkT) -> _SinkT:
    sink.check_predicates()
    return sink


def _rendered(sink: DeltaSink, render: Callable[[str], str]) -> dict[str, Any]:
    given = {"uri": sink.uri, "location": sink.location, "where": sink.where}
    return {name: None if text is None else render(text) for name, text in given.items()}
