"""``TablePattern``: tables of a fleet that are found when a run begins, as a value for a DAG file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fleet.glob import FolderGlob
from airflow_provider_fds.fleet.template import (
    expanded,
    expanded_checkpoint,
    expanded_sink,
    parts_in,
    template_problems,
)
from airflow_provider_fds.fleet.value import FleetStream, checked_fields, coerced, positive_timeout
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.schemes import location
from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream, text_problems
from airflow_provider_fds.stream.declaration.sink_needs import coerce_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import timedelta

    from airflow_provider_fds.catalog.table import ListedTable
    from airflow_provider_fds.fleet.name_glob import NameGlob
    from airflow_provider_fds.sinks import Sink

NewTables = Literal["start", "alert", "ignore"]

_NEW_TABLES: Final = ("start", "alert", "ignore")


@dataclass(frozen=True)
class Discovery:
    """The tables that a pattern found.

    Attributes:
        streams: The stream of each table, by name.
        problems: A sentence for each table that cannot have a stream.
        is_empty: Whether there is no table at all, not even one that is excluded.
        left_out: Names in the catalog that are none of a table that FDS can read.
    """

    streams: tuple[FleetStream, ...] = ()
    problems: tuple[str, ...] = ()
    is_empty: bool = False
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class TablePattern:
    """Tables of a fleet that are found in storage, or in a schema of a catalog, when a run begins.

    A table is a folder with a ``_delta_log``, or the name of a Delta table that FDS can read. In ``name`` and ``sink``,
    parts in braces are replaced for each table: ``{table}`` is the name of its folder, ``{schema}`` the name of the
    folder above it, and ``{1}`` the text that the first ``*`` of ``tables`` stands for. In a catalog, they are parts of
    the name.

    Args:
        tables: URI or path with one or more ``*`` in its folders; each ``*`` stands for text without a slash. A ``*``
            at the start of a folder does not stand for a name that begins with ``_`` or ``.``. With
            ``catalog_conn_id``, a name with one or more ``*`` in its last part: ``main.sales.*``.
        sink: The sink of each table. Parts are replaced in all its strings except predicates and names of functions.
        name: Name of each table's stream; default: the text of all ``*``, joined by dots.
        include: Only tables that match one of these, with ``*`` for any text without a slash: the name of the table's
            folder, or, with a slash, its path below the part of ``tables`` without ``*``. In a catalog: its name in
            the schema, in any case.
        exclude: Not the tables that match one of these; decides over ``include``.
        new_tables: What happens when a table appears after the first run: ``"start"`` loads it, ``"alert"`` leaves it
            out with an alert, ``"ignore"`` leaves it out. A table that is gone is never ignored.
        storage_conn_id: As for :class:`~airflow_provider_fds.DeltaStream`, and so are the next three.
        checkpoint: Where to keep the committed offset. ``"file:<path>"`` needs a part, such as ``{name}``, the name of
            the stream, so that each stream has a file of its own.
        staging: URI of the folder for ledger and manifests.
        allow_overlap: Whether the streams may append versions that other streams append to the same sink.
        expect: What each row should satisfy before it is written, as for :class:`~airflow_provider_fds.DeltaStream`.
        max_rejected: Greatest share of a batch's rows that expectations may keep out of the sink.
        rejects: URI of the Delta table of rejected rows, with parts such as ``{table}``.
        options: Source options of each stream.
        batch_timeout: The longest time that Spark may take for one batch; ``None``: no limit.
        catalog_conn_id: Airflow connection of the catalog that has the tables; ``None``: they are found in storage.

    Raises:
        ConfigurationError: Reports all problems at once.

    Examples:
        >>> from airflow_provider_fds import DeltaAppendSink
        >>> raw = TablePattern("s3://lake/raw/*", sink=DeltaAppendSink("s3://bronze/{schema}/{table}"))
        >>> raw.stream_of("s3://lake/raw/orders").sink.uri
        's3://bronze/raw/orders'
    """

    tables: str
    sink: Sink
    name: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    new_tables: NewTables = "start"
    storage_conn_id: str | None = None
    checkpoint: str = "variable"
    staging: str | None = None
    allow_overlap: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    batch_timeout: timedelta | None = None
    catalog_conn_id: str | None = None
    expect: Mapping[str, str] | None = field(default=None, hash=False)
    max_rejected: float | None = None
    rejects: str | None = None

    def __post_init__(self) -> None:
        problems = text_problems("tables", self.tables)
        if self.catalog_conn_id is not None:
            problems += text_problems("catalog_conn_id", self.catalog_conn_id)
        if problems:
            raise ConfigurationError(*problems, subject="table pattern", reason=Reason.INVALID_OPTION)
        object.__setattr__(self, "sink", coerce_sink(self.sink))
        object.__setattr__(self, "batch_timeout", positive_timeout(self.batch_timeout))
        for listed in ("include", "exclude"):
            given = getattr(self, listed)
            if not isinstance(given, (list, tuple)) or not all(isinstance(glob, str) and glob for glob in given):
                problems.append(f"{listed} must be a list of names with '*', got {given!r}.")
            else:
                object.__setattr__(self, listed, tuple(given))
        if self.new_tables not in _NEW_TABLES:
            problems.append(f"new_tables must be 'start', 'alert' or 'ignore', got {self.new_tables!r}.")
        glob = self.glob
        problems += glob.problems()
        if not problems:
            parts = glob.parts_of(glob.sample())
            problems += template_problems(self.name, self.checkpoint, self.sink, parts)
        if not problems:
            # values that no table's stream could have
            try:
                self.stream_of(glob.sample())
            except ConfigurationError as error:
                problems += error.problems
        if problems:
            raise ConfigurationError(*problems, subject=f"table pattern {self.tables!r}", reason=Reason.INVALID_OPTION)

    @property
    def glob(self) -> FolderGlob | NameGlob:
        """What ``tables`` stands for."""
        if self.catalog_conn_id is None:
            return FolderGlob(self.tables)
        from airflow_provider_fds.fleet.name_glob import NameGlob

        return NameGlob(self.tables)

    def stream_of(self, table: str) -> FleetStream:
        """Return the stream of a table, given by its URI or its name, which the pattern matches.

        Raises:
            ConfigurationError: The pattern does not match the table, or its name gives an invalid stream or sink.
        """
        parts = self.glob.parts_of(table)
        name = expanded(self.name or ".".join(value for part, value in parts.items() if part.isdigit()), parts)
        stream = DeltaStream(
            name,
            table=table,
            storage_conn_id=self.storage_conn_id,
            catalog_conn_id=self.catalog_conn_id,
            checkpoint=expanded_checkpoint(self.checkpoint, name, parts),
            staging=self.staging,
            allow_overlap=self.allow_overlap,
            expect=self.expect,
            max_rejected=self.max_rejected,
            rejects=None if self.rejects is None else expanded(self.rejects, {**parts, "name": name}),
            options=self.options,
        )
        return FleetStream(stream, expanded_sink(self.sink, parts), self.batch_timeout)

    def without(self, declared: Iterable[FleetStream]) -> TablePattern:
        """Return the pattern with those tables excluded that it matches, and that are declared as streams."""
        glob = self.glob
        streams = (one.stream for one in declared)
        paths = (glob.path_of(one.table) for one in streams if one.catalog_conn_id == self.catalog_conn_id)
        more = [path for path in paths if path is not None and path not in self.exclude]
        return replace(self, exclude=(*self.exclude, *more)) if more else self

    @property
    def shares_sink(self) -> bool:
        """Whether all tables have the same sink."""
        return not parts_in(self.sink)

    def discover(
        self,
        list_folders: Callable[[str], Collection[str]],
        is_table: Callable[[str], bool] | None = None,
        known: Collection[str] = (),
    ) -> Discovery:
        """Find the tables and return their streams, by name.

        Args:
            list_folders: Returns the names of the direct sub-folders of a folder, given by its encoded URI.
            is_table: Whether the folder at an encoded URI has a ``_delta_log``; default: asks ``list_folders``, which
                costs more in a folder with many files.
            known: Tables whose streams have begun, each as :func:`location` returns it.

        Returns:
            The streams. A table whose name gives an invalid stream or sink is a problem, and so are two tables with
            the same stream: only one that is known is loaded, and none of two new ones is started.
        """
        if is_table is None:

            def is_table(uri: str) -> bool:
                return "_delta_log" in list_folders(uri)

        return self._discovered(FolderGlob(self.tables).matches(list_folders), is_table, known)

    def discover_listed(self, listed: Iterable[ListedTable], known: Collection[str]) -> Discovery:
        """Find the tables of a catalog and return their streams, by name.

        Args:
            listed: The tables of the pattern's schema.
            known: Names of tables whose streams have begun: they notice by themselves that it became a view.

        Returns:
            As :meth:`discover`.
        """
        glob = self.glob
        found = {name: one for one in listed if glob.path_of(name := str(one.name)) is not None}
        readable = [name for name, one in found.items() if not one.problem or name in known]
        unreadable = (name for name in found if name not in readable)
        left_out = tuple(name for name in unreadable if glob.chooses(name, self.include, self.exclude))
        return replace(self._discovered(readable, lambda _name: True, known), left_out=left_out)

    def _discovered(self, tables: Iterable[str], is_table: Callable[[str], bool], known: Collection[str]) -> Discovery:
        found: dict[str, list[FleetStream]] = {}
        problems: list[str] = []
        glob = self.glob
        is_empty = True
        for table in tables:
            if not glob.chooses(table, self.include, self.exclude):
                is_empty = False
                continue
            if not is_table(table):
                continue
            is_empty = False
            try:
                one = self.stream_of(table)
            except ConfigurationError as error:
                problems.append(f"table {table} cannot be loaded: {error} Exclude it, or change the pattern's name.")
                continue
            found.setdefault(one.name, []).append(one)
        streams: list[FleetStream] = []
        for name, same in sorted(found.items()):
            begun = next((one for one in same if location(one.stream.table) in known), None)
            others = ", ".join(one.stream.table for one in same if one is not begun)
            if len(same) == 1:
                streams += same
            elif begun is None:
                problems.append(
                    f"stream {name!r} would load {len(same)} tables: {others}. Give the pattern a name that differs, "
                    "such as '{schema}.{table}'."
                )
            else:
                streams.append(begun)
                # another name of the pattern would start all its tables again
                problems.append(
                    f"stream {name!r} loads table {begun.stream.table} and cannot load {others} too. Declare each of "
                    "the others as a stream with a name of its own, or exclude it."
                )
        return Discovery(tuple(streams), tuple(problems), is_empty)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-compatible values that :meth:`from_dict` accepts. Contains no secret."""
        found: dict[str, Any] = {
            "tables": self.tables,
            "sink": self.sink.serialize(),
            "name": self.name,
            "include": list(self.include),
            "exclude": list(self.exclude),
            "new_tables": self.new_tables,
            "storage_conn_id": self.storage_conn_id,
            "checkpoint": self.checkpoint,
            "staging": self.staging,
            "allow_overlap": self.allow_overlap,
            "options": self.stream_of(self.glob.sample()).stream.options.to_dict(),
        }
        if self.catalog_conn_id is not None:
            found["catalog_conn_id"] = self.catalog_conn_id
        if self.batch_timeout is not None:
            found["batch_timeout"] = self.batch_timeout.total_seconds()
        given = {"expect": self.expect, "max_rejected": self.max_rejected, "rejects": self.rejects}
        return found | {name: one for name, one in given.items() if one is not None}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> TablePattern:
        """Build the value from the result of :meth:`to_dict`, or from a mapping of the constructor's arguments.

        Raises:
            ConfigurationError: ``tables`` or ``sink`` is missing, there is another key, or a value is invalid.
        """
        optional = set(cls.__dataclass_fields__) - {"tables", "sink"}
        return cls(**checked_fields(value, "a table pattern", {"tables", "sink"}, optional))

    @classmethod
    def coerce(cls, value: object) -> TablePattern:
        """Return ``value`` if it is a :class:`TablePattern`; build one from a mapping.

        Raises:
            ConfigurationError: The value is anything else.
        """
        return coerced(cls, value, "a table pattern", "'tables' and 'sink'")

    def serialize(self) -> dict[str, Any]:
        """Return what Airflow shows for the value in a serialised DAG."""
        return self.to_dict()
