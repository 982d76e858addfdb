"""The sink that loads into a table of PostgreSQL. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from airflow_provider_fds.sinks import options
from airflow_provider_fds.sinks.base import Delivery, RowSink, Target
from airflow_provider_fds.sinks.constants import constant_columns, jsonable
from airflow_provider_fds.sinks.merge import checked_keys, columns_by_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.sinks.constants import Constant

#: PostgreSQL cuts a longer name without an error.
_MOST_BYTES = 63
_PART = re.compile(r'"((?:[^"]|"")+)"|([a-z_][a-z0-9_$]*)')
_PARTS = 2
_MODES = ("append", "merge", "replace")
#: What the target of a binding does not say.
_UNSAID = {"account": "fds", "mode": "append"}


@dataclass(frozen=True)
class PostgresSink(RowSink):
    """Loads each batch into a table of PostgreSQL exactly once: appends, merges by key, or replaces a data interval.

    The driver copies the rows of a batch into the table with COPY, in one transaction that also records the batch in
    an account: tables in a schema of the same database. A batch is done if the account has it.

    With ``mode="merge"`` the rows are copied into a temporary table of that transaction, and update or are inserted
    into the table from there. Order, whole commits and refused rows are as for :class:`DeltaMergeSink` with ``scd=1``;
    columns that only the table has stay unchanged. Other writers of the table wait from then on for the end of the
    transaction.

    With ``mode="replace"``, a run of a data interval deletes the rows of the interval's source versions that an earlier
    run has written, and copies its own, in one transaction. It is refused if it would delete more rows than the account
    says that the stream wrote.

    Args:
        table: Name of the table with its schema, such as ``"public.orders"``. A name that is anything but lower-case
            letters, digits, ``_`` and ``$`` is written in double quotes, as in SQL.
        conn_id: Airflow connection of type ``postgres``; ``None``: the environment of the driver says where the
            database is, as it does for ``psql`` (``PGHOST``, ``PGSERVICE``, ``PGPASSFILE`` …).
        mode: ``"append"``, ``"merge"``, or ``"replace"`` for data intervals, which needs ``provenance``.
        keys: With ``"merge"``: columns that identify a row; required.
        sequence_by: With ``"merge"``: column that orders the changes to a key, if the order of commits does not.
        delete_rows: With ``"merge"``: whether what the change feed says was deleted is deleted from the table;
            otherwise it stays there.
        create: Whether the first batch creates a missing table, with the nearest type for each column of the batch and,
            with ``"merge"``, the keys as its primary key. The schema must exist.
        merge_schema: Whether columns that the table lacks are added to it. Types are not changed.
        account: Schema of the account. The first batch creates the tables in it, and the schema, if they are missing.
        provenance: Also write ``_source_version`` (bigint) and ``_source_timestamp`` (timestamptz) per row.
        where: Write only the rows that satisfy this predicate over the batch's columns, including ``_commit_version``
            and ``_commit_timestamp``.
        transform: ``"pkg.module:function"``, a function on the driver. It takes the batch's DataFrame, after ``where``,
            and returns the DataFrame to write.
        columns: Columns to write, chosen from the result of ``transform``; default all.
        constant_columns: Columns to add to each row, with their values, as for the sinks of Delta tables.
        unsafe_sql: Allow ``where`` to call ``reflect`` and similar functions and to read other tables in subqueries.
        other_streams: UUIDs of streams of the same name, with ledgers in other staging folders, that load other rows.
    """

    kind: ClassVar[str] = "postgres"
    target: ClassVar[Target] = "database_table"
    scheme: ClassVar[str | None] = "postgres"
    delivery: ClassVar[Delivery] = "transaction"
    needs_order: ClassVar[bool] = False
    can_remove_rows: ClassVar[bool] = True

    table: str
    conn_id: str | None = None
    mode: str = "append"
    keys: tuple[str, ...] = ()
    sequence_by: str | None = None
    delete_rows: bool = True
    create: bool = False
    merge_schema: bool = False
    account: str = "fds"
    provenance: bool = False
    where: str | None = None
    transform: str | None = None
    columns: tuple[str, ...] = ()
    constant_columns: Mapping[str, Constant] = field(default_factory=dict, hash=False)
    unsafe_sql: bool = False
    other_streams: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        options.flags(self)
        if not isinstance(self.table, str) or "{" not in self.table:
            table_parts(self.table)
        _check_identifier(self.account, "PostgresSink: account")
        if self.conn_id is not None and (not isinstance(self.conn_id, str) or not self.conn_id.strip()):
            raise ValueError(f"PostgresSink: conn_id must be the id of a connection, got {self.conn_id!r}")
        if self.mode not in _MODES:
            raise ValueError(f"PostgresSink: mode must be 'append', 'merge' or 'replace', got {self.mode!r}")
        object.__setattr__(self, "columns", options.names(self.columns, "PostgresSink: columns"))
        constants = constant_columns(self.constant_columns, "PostgresSink: constant_columns", chosen=self.columns)
        object.__setattr__(self, "constant_columns", constants)
        self._check_mode()
        uuids = options.uuids(self.other_streams, "PostgresSink: other_streams")
        object.__setattr__(self, "other_streams", uuids)
        if self.transform is not None:
            options.function(self.transform, "PostgresSink: transform")
        if self.where is not None:
            options.predicate(self.where, "PostgresSink: where")
            if not options.is_template(self.where):
                self.check_predicates()

    def _check_mode(self) -> None:
        if self.mode == "merge":
            object.__setattr__(self, "keys", checked_keys(self))
            # the class has what holds for appends
            object.__setattr__(self, "needs_keys", True)
            object.__setattr__(self, "needs_order", True)
            object.__setattr__(self, "needs_whole_commits", True)
            object.__setattr__(self, "can_remove_rows", False)
            return
        given = {
            "keys": bool(self.keys),
            "sequence_by": self.sequence_by is not None,
            "delete_rows": not self.delete_rows,
        }
        if found := [name for name, is_given in given.items() if is_given]:
            raise ValueError(f"PostgresSink: {', '.join(found)} is for mode='merge'; add it, or omit {found[0]}")
        if self.mode == "replace":
            if not self.provenance:
                raise ValueError(
                    "PostgresSink: mode='replace' needs provenance=True: the column _source_version says which rows an "
                    "earlier run of the interval has written"
                )
            object.__setattr__(self, "replaces", True)

    def check_predicates(self) -> None:
        """Raise ``ValueError`` if ``where`` is anything other than an expression over columns."""
        if self.where is not None and not self.unsafe_sql:
            options.columns_only(self.where, "PostgresSink: where")

    @property
    def database_conn_id(self) -> str | None:
        """Airflow connection of the database; ``None``: the environment of the driver."""
        return self.conn_id

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """The columns to write, and those that a merge needs, unless ``transform`` may add them."""
        return columns_by_key(self) if self.mode == "merge" else super().needed_columns

    @property
    def writes_rows_as_they_are(self) -> bool:
        """Whether the sink writes as many rows as the batch has, so that FDS can check the log's own count."""
        return self.mode != "merge" and super().writes_rows_as_they_are

    def may_hold_rows(self, first: int, last: int, *, is_first_load: bool) -> bool:
        """Whether a run without rows may have rows to remove; see :meth:`.base.Sink.may_hold_rows`."""
        return first <= last and not is_first_load

    @property
    def parts(self) -> tuple[str, str]:
        """Schema and name of the table."""
        return table_parts(self.table)

    def to_dict(self) -> dict[str, Any]:
        """Return the sink as JSON-compatible values, without anything secret."""
        return {**super().to_dict(), "constant_columns": jsonable(self.constant_columns)}

    def identity(self) -> dict[str, str]:
        """Return the identity that a stream is bound to: connection, table, account and mode."""
        where = quote(self.conn_id or "", safe="")
        more = {"account": self.account, "mode": self.mode}
        query = urlencode({name: value for name, value in more.items() if value != _UNSAID[name]})
        target = f"{self.scheme}://{where}/{quote(self.table, safe='{}')}" + (f"?{query}" if query else "")
        return {"kind": self.kind, "target": target}

    @classmethod
    def merges_into(cls, target: str) -> bool:
        """Whether the sink of a binding's ``target`` applies rows by key."""
        return _bound(target, "mode") == "merge"

    @classmethod
    def replaces_in(cls, target: str) -> bool:
        """Whether a run replaces rows of its data interval in the sink of a binding's ``target``."""
        return _bound(target, "mode") == "replace"

    @classmethod
    def removes_from(cls, target: str) -> bool:
        """Whether a fence can remove rows: a merged row may have values that only the table has."""
        return not cls.merges_into(target)

    @classmethod
    def of_target(cls, target: str) -> PostgresSink:
        """Return the sink that a stream was bound to: connection, table and account, which close epochs in any mode."""
        found = urlsplit(target)
        account = _bound(target, "account")
        return cls(unquote(found.path[1:]), conn_id=unquote(found.netloc) or None, account=account)

    def describe(self) -> str:
        """Return where the rows go, for messages."""
        where = "the environment" if self.conn_id is None else f"connection {self.conn_id!r}"
        return f"table {self.table} of {where}"

    def rendered(self, render: Callable[[str], str]) -> PostgresSink:
        """Return a copy with ``table`` and ``where`` rendered by ``render`` (Airflow's templates)."""
        where = None if self.where is None else render(self.where)
        made = replace(self, table=render(self.table), where=where)
        made.check_predicates()
        return made


def table_parts(name: object) -> tuple[str, str]:
    """Return schema and name of a table.

    >>> table_parts('public."Orders, new"')
    ('public', 'Orders, new')

    Raises:
        ValueError: It is not the name of a table with its schema.
    """
    found, at = [], 0
    text = name if isinstance(name, str) else ""
    while (part := _PART.match(text, at)) is not None:
        found.append(part[2] if part[1] is None else part[1].replace('""', '"'))
        at = part.end()
        if text[at : at + 1] != ".":
            break
        at += 1
    if at != len(text) or len(found) != _PARTS or text.endswith("."):
        raise ValueError(
            f"PostgresSink: table must be the name of a table with its schema, such as 'public.orders', got {name!r}. "
            "Write a part with other characters than lower-case letters, digits, '_' and '$' in double quotes: "
            "'public.\"Orders\"'"
        )
    for one in found:
        _check_identifier(one, "PostgresSink: table")
    return found[0], found[1]


def quoted(*parts: str) -> str:
    """Return an identifier of SQL, whatever characters its parts have."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _bound(target: str, name: str) -> str:
    return parse_qs(urlsplit(target).query).get(name, [_UNSAID[name]])[0]


def _check_identifier(name: object, what: str) -> None:
    if not isinstance(name, str) or not name or "\0" in name or len(name.encode()) > _MOST_BYTES:
        raise ValueError(f"{what} must be a name of 1 to {_MOST_BYTES} bytes, got {name!r}")
