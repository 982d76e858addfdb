"""``DeltaStream``: a named read position in one table, as a value for a DAG file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_fds.checkpoint.registry import checkpoint_problem
from airflow_provider_fds.credentials import redacted_uri, secret_part
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.stream.declaration.backfill_range import (
    LIVE_START,
    PLACES,
    BackfillRange,
    declared_range,
    is_template,
)
from airflow_provider_fds.stream.declaration.fork_fields import fork_fields, fork_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import date

    from airflow_provider_fds.batch.spec import Expectations

#: Valid stream names: a name becomes a folder in staging and part of an Airflow Variable's key and of URLs.
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")

#: ``schema.table`` or ``catalog.schema.table``.
_CATALOG_NAME: Final = re.compile(r"\w[\w-]*(?:\.\w[\w-]*){1,2}")


class DeltaStream:
    """A named read position in one Delta table, with its start, batch size and rules.

    A stream is a value: it does no I/O, holds no credentials and compares by value. Its position is in the ledger in
    staging and, visible to people, in the checkpoint. Each name has one position: use another name for another consumer
    of the same table.

    Args:
        name: Name of the position: at most 100 characters of ``[A-Za-z0-9._-]``, not starting with a dot.
        table: URI (``s3://…``, ``file:///…``) or path of the source table; with ``catalog_conn_id``, its name.
        storage_conn_id: Airflow connection for the storage of table and staging; ``None`` to use the environment's
            credentials.
        catalog_conn_id: Airflow connection of the catalog that knows where the table of this name is.
        read: ``"offset"``: from the last committed offset to the newest version. ``"data_interval"``: each run reads
            the versions committed in its own data interval, start inclusive, end exclusive. There is no offset, and
            runs may execute in any order.
        checkpoint: Where to keep the committed offset: ``"variable"`` (an Airflow Variable), ``"xcom"`` (an XCom of the
            task that committed), ``"asset"`` (the state store of the table's asset, from Airflow 3.3 on) or
            ``"file:<path>"``. Not used with ``read="data_interval"``.
        staging: URI of the folder for ledger and manifests; ``None`` uses ``[fds] staging``.
        allow_overlap: Whether the stream may append versions of its table that another stream appends to the same sink,
            or replace a part of a sink in which another stream has rows. Set it if the two streams load different rows,
            or if duplicates do not matter.
        expect: What each row should satisfy before it is written: SQL expressions, each with an action: ``"warn"``
            writes and counts the rows that fail, ``"drop"`` leaves them out, ``"reject"`` writes them into the table
            ``rejects`` instead, ``"fail"`` fails the batch.
        max_rejected: Greatest share of a batch's rows that expectations may leave out; a batch with more fails.
        rejects: URI of the Delta table of rejected rows, which the first of them creates.
        backfill: The range of a backfill; use :meth:`backfill`.
        fork_of: Name of the stream that a new one continues; use :meth:`fork`.
        options: Source options by name; Delta's own camelCase spelling is accepted.
        **source_options: Source options in snake case, see ``docs/options.md``.

    Raises:
        ConfigurationError: Reports all problems at once.

    Examples:
        >>> stream = DeltaStream("orders_to_bronze", table="s3://lake/orders", starting_timestamp="2026-01-01")
        >>> stream.name, stream.options.max_files_per_batch
        ('orders_to_bronze', 1000)
    """

    __slots__ = (
        "allow_overlap",
        "backfill_range",
        "catalog_conn_id",
        "checkpoint",
        "expectations",
        "fork_of",
        "name",
        "options",
        "read",
        "staging",
        "storage_conn_id",
        "table",
    )

    name: str
    table: str
    storage_conn_id: str | None
    catalog_conn_id: str | None
    read: Literal["offset", "data_interval"]
    checkpoint: str
    staging: str | None
    allow_overlap: bool
    expectations: Expectations | None
    backfill_range: BackfillRange | None
    fork_of: str | None
    options: SourceOptions

    def __init__(
        self,
        name: str,
        table: str,
        *,
        storage_conn_id: str | None = None,
        catalog_conn_id: str | None = None,
        read: str = "offset",
        checkpoint: str = "variable",
        staging: str | None = None,
        allow_overlap: bool = False,
        expect: Mapping[str, str] | None = None,
        max_rejected: float | None = None,
        rejects: str | None = None,
        backfill: Mapping[str, Any] | None = None,
        fork_of: str | None = None,
        options: Mapping[str, Any] | None = None,
        **source_options: Any,
    ) -> None:
        problems = _name_problems(name)
        problems += text_problems("table", table) or _table_problems(table, catalog_conn_id)
        given = {"staging": staging, "storage_conn_id": storage_conn_id, "catalog_conn_id": catalog_conn_id}
        for argument, text in given.items():
            if text is not None:
                problems += text_problems(argument, text)
        problems += _read_problems(read)
        if (problem := checkpoint_problem(checkpoint)) is not None:
            problems.append(problem)
        values, of_values = _option_values(options or {}, source_options)
        problems += of_values
        problems += _overlap_problems(allow_overlap)
        expectations, of_rows = _expectations(expect, max_rejected, rejects)
        problems += of_rows
        problems += fork_problems(name, read, backfill, fork_of, values)
        backfill_range: BackfillRange | None = None
        if backfill is not None and not problems:
            backfill_range, problems = declared_range(name, checkpoint, read, backfill, values)
            if backfill_range is not None:
                values |= backfill_range.options()
                name, checkpoint = backfill_range.own_name, backfill_range.own_checkpoint
        parsed: SourceOptions | None = None
        try:
            parsed = SourceOptions.parse(values, by_interval=read == "data_interval")
        except ConfigurationError as error:
            problems += error.problems
        if parsed is not None and name in parsed.align_with:
            problems.append(f"align_with names the stream {name!r} itself. Name other streams.")
        if problems or parsed is None:
            raise ConfigurationError(
                *problems,
                subject=f"stream {name!r}",
                table=redacted_uri(table) if isinstance(table, str) else None,
                reason=Reason.INVALID_OPTION,
            )
        for key, value in (
            ("name", name),
            ("table", table),
            ("storage_conn_id", storage_conn_id),
            ("catalog_conn_id", catalog_conn_id),
            ("read", read),
            ("checkpoint", checkpoint),
            ("staging", staging),
            ("allow_overlap", allow_overlap),
            ("expectations", expectations),
            ("backfill_range", backfill_range),
            ("fork_of", fork_of),
            ("options", parsed),
        ):
            object.__setattr__(self, key, value)

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"DeltaStream is immutable: {key} cannot be set to {value!r}; create another stream")

    def __delattr__(self, key: str) -> None:
        raise AttributeError(f"DeltaStream is immutable: {key} cannot be removed")

    def __reduce__(self) -> tuple[Any, ...]:
        return (DeltaStream.from_dict, (self.to_dict(),))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeltaStream) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))

    def __repr__(self) -> str:
        return f"DeltaStream({self.name!r}, table={self.table!r})"

    @property
    def reads_by_interval(self) -> bool:
        """Whether each run reads its own data interval; then there is no offset."""
        return self.read == "data_interval"

    @property
    def table_uri(self) -> str:
        """What identifies the table without asking anybody: its canonical URI, or its name in a catalog as a URI.

        Raises:
            ConfigurationError: The table is a template, or a URI that no store has.
        """
        if self.catalog_conn_id is not None:
            from airflow_provider_fds.catalog.names import name_uri

            return name_uri(self.catalog_conn_id, self.table)
        from airflow_provider_fds.delta.storage.open import canonical_uri

        return canonical_uri(self.table)

    def to_dict(self) -> dict[str, Any]:
        """Return the stream as JSON-compatible values that :meth:`from_dict` accepts. Contains no secret."""
        found: dict[str, Any] = {
            "name": self.name,
            "table": self.table,
            "storage_conn_id": self.storage_conn_id,
            "read": self.read,
            "checkpoint": self.checkpoint,
            "staging": self.staging,
            "options": self.options.to_dict(),
        }
        if self.catalog_conn_id is not None:
            found["catalog_conn_id"] = self.catalog_conn_id
        if self.allow_overlap:
            found["allow_overlap"] = True
        if self.expectations is not None:
            found |= self.expectations.to_dict()
        if self.fork_of is not None:
            found["fork_of"] = self.fork_of
        if (of := self.backfill_range) is not None:
            own = {name: value for name, value in self.options.to_dict().items() if name not in PLACES}
            found |= {"name": of.of, "checkpoint": of.checkpoint, "options": own, "backfill": of.to_dict()}
        return found

    def backfill(
        self,
        *,
        start: int | str | date = "earliest",
        end: int | str | date = LIVE_START,
        allow_overlap: bool = False,
    ) -> DeltaStream:
        """Return a bounded stream that loads a range of this stream's table and leaves this stream's position alone.

        Its name is ``<name>.bf.<digest of the range>``, so each range has a position of its own: a range that was
        interrupted continues, and one that is finished is not loaded again. Start and end may be templates
        (``"{{ params.start }}"``, ``"{{ dag_run.conf['start'] }}"``). A string of digits is a version; any other string
        is a time, in UTC unless it names a zone. The other options are those of this stream.

        Args:
            start: First version to read (inclusive), a time (from the first commit at or after it), or ``"earliest"``.
            end: Last version to read (inclusive), a time (up to the last commit at or before it), or ``"live_start"``:
                up to the version before the one where this stream began.
            allow_overlap: See :class:`DeltaStream`.

        Raises:
            ConfigurationError: The range is invalid, or this stream reads data intervals.

        Examples:
            >>> orders = DeltaStream("orders", table="s3://lake/orders")
            >>> january = orders.backfill(start="2026-01-01", end="2026-01-31T23:59:59Z")
            >>> january.name
            'orders.bf.b474edb7f299'
        """
        if self.backfill_range is not None:
            raise ConfigurationError(
                f"stream {self.name!r} is itself a backfill. Call backfill() on stream {self.backfill_range.of!r}.",
                table=redacted_uri(self.table),
            )
        fields = self.to_dict()
        fields["options"] = {name: value for name, value in fields["options"].items() if name not in PLACES}
        fields["backfill"] = {"start": start, "end": end}
        fields.pop("fork_of", None)
        fields["allow_overlap"] = allow_overlap or self.allow_overlap
        return DeltaStream.from_dict(fields)

    def fork(self, name: str, **changes: Any) -> DeltaStream:
        """Return a new stream that continues where this one is when the new one first runs.

        The first row that it reads is the first one that this stream had not committed at that moment, also within a
        version or an initial snapshot. From then on the two are independent. The fork must not load into the sink that
        this stream loads into, unless this one is retired. Calling this does no I/O.

        Args:
            name: Name of the new stream.
            **changes: What differs from this stream: source options other than those of the start,
                ``allow_overlap``, ``checkpoint``. A checkpoint in a file is by default ``<file>.<name>``.

        Raises:
            ConfigurationError: A value is invalid, or this stream has no offset of its own to continue from.

        Examples:
            >>> orders = DeltaStream("orders", table="s3://lake/orders", max_files_per_batch=500)
            >>> orders.fork("orders_to_audit", max_files_per_batch=100)
            DeltaStream('orders_to_audit', table='s3://lake/orders')
        """
        if self.backfill_range is not None:
            raise ConfigurationError(
                f"stream {self.name!r} is a backfill, which has an end. Fork stream {self.backfill_range.of!r}, or "
                "declare another backfill.",
                table=redacted_uri(self.table),
            )
        return DeltaStream.from_dict(fork_fields(self.to_dict(), name, changes))

    def ending_before_live(self, version: int) -> DeltaStream:
        """Return the backfill with ``end="live_start"`` resolved: the live stream began at ``version``."""
        assert self.backfill_range is not None  # noqa: S101  # only a backfill has such an end
        backfill = self.backfill_range.ending_at(version - 1).to_dict()
        return DeltaStream.from_dict({**self.to_dict(), "backfill": backfill})

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> DeltaStream:
        """Build a stream from the result of :meth:`to_dict`, or from a mapping of the constructor's arguments.

        Raises:
            ConfigurationError: Name or table is missing, or a value is invalid.
        """
        fields = dict(value)
        missing = [key for key in ("name", "table") if key not in fields]
        if missing:
            raise ConfigurationError(f"a stream needs 'name' and 'table'; missing in {fields!r}: {', '.join(missing)}.")
        return cls(fields.pop("name"), fields.pop("table"), **fields)

    @classmethod
    def coerce(cls, value: object) -> DeltaStream:
        """Return ``value`` if it is a stream; build a stream if it is a mapping (such as a value from an XCom).

        Raises:
            ConfigurationError: The value is anything else.
        """
        if isinstance(value, DeltaStream):
            return value
        if isinstance(value, dict):
            return cls.from_dict(value)
        raise ConfigurationError(
            f"stream must be a DeltaStream or a dict of its arguments, got {type(value).__name__}: {value!r}."
        )

    @classmethod
    def refuse_others(cls, value: object) -> None:
        """Refuse what cannot be a stream when the task runs; a template and the value of an XCom are unknown before.

        Raises:
            ConfigurationError: It is ``None``, or a text such as the name of a stream.
        """
        if value is None or (isinstance(value, str) and not is_template(value)):
            cls.coerce(value)

    def serialize(self) -> dict[str, Any]:
        """Return what Airflow shows for the stream in a serialised DAG."""
        return self.to_dict()

    def rendered(self, render: Callable[[str], str]) -> DeltaStream:
        """Return a copy with its templates rendered by ``render``: in table, staging, and the range of a backfill.

        Raises:
            ConfigurationError: A rendered value is invalid.
        """
        fields = self.to_dict()
        fields["table"] = render(self.table)
        if self.staging is not None:
            fields["staging"] = render(self.staging)
        if self.backfill_range is not None:
            fields["backfill"] = self.backfill_range.rendered(render)
        return self if fields == self.to_dict() else DeltaStream.from_dict(fields)


def _option_values(options: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the source options given in both ways, without those that are templates, and what is wrong with them."""
    values: dict[str, Any] = {}
    problems = []
    for key, value in {**options, **arguments}.items():
        if is_template(value):
            problems.append(
                f"option {key!r} is a template or another task's output ({value!r}). A stream's position outlives "
                "a run, so its options must be the same in every run: use a literal value."
            )
        else:
            values[key] = value
    doubled = sorted(set(options) & set(arguments))
    problems += [f"option {key!r} is given twice, in options and as an argument." for key in doubled]
    return values, problems


def _overlap_problems(allow_overlap: object) -> list[str]:
    return [] if isinstance(allow_overlap, bool) else [f"allow_overlap must be True or False, got {allow_overlap!r}."]


def _expectations(
    expect: Mapping[str, str] | None, share: float | None, rejects: str | None
) -> tuple[Expectations | None, list[str]]:
    """Return the expectations of a stream, and what is wrong with them."""
    if expect is None and share is None and rejects is None:
        return None, []
    from airflow_provider_fds.batch.spec import Expectations
    from airflow_provider_fds.stream.declaration.expectation_problems import expectation_problems

    problems = expectation_problems(expect, share, rejects)
    if rejects is not None:
        problems += text_problems("rejects", rejects)
    return (None if problems or not expect else Expectations(dict(expect), share, rejects)), problems


def _name_problems(name: object) -> list[str]:
    if is_template(name):
        return [
            (
                f"name {name!r} is a template or another task's output. The next run finds its position by the "
                "name, so it must be the same in every run: use a literal name, and one DeltaStream per table."
            )
        ]
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        return [f"name {name!r} must have 1 to 100 letters, digits, '.', '_' or '-', and cannot begin with a dot."]
    return []


def text_problems(argument: str, value: object) -> list[str]:
    """Return what is wrong with a URI or the id of a connection in a DAG file, one sentence each."""
    if isinstance(value, str) and value.strip():
        part = secret_part(value) if "://" in value and not is_template(value) else None
        if part is None:
            return []
        return [
            (
                f"{argument} {redacted_uri(value)!r} contains {part}, visible to everyone who can see the DAG. "
                "Put credentials into the Airflow connection named by storage_conn_id."
            )
        ]
    if is_template(value):
        return [
            (
                f"{argument} is another task's output ({value!r}). Airflow does not look inside a stream, so the "
                "task would run before its input. Use a literal string or a Jinja template."
            )
        ]
    return [f"{argument} must be a non-empty string, got {value!r}."]


def _table_problems(table: str, catalog_conn_id: str | None) -> list[str]:
    """Refuse what is no name if there is a catalog, and what looks like one if there is none."""
    if is_template(table):
        return []
    if catalog_conn_id is not None:
        from airflow_provider_fds.catalog.names import TableName

        try:
            TableName.parse(table)
        except ConfigurationError as error:
            return [f"table: {error}."]
        return []
    if _CATALOG_NAME.fullmatch(table) is None or Path(table).exists():
        return []
    return [
        (
            f"table {table!r} looks like a name in a catalog. Set catalog_conn_id to the Airflow connection of that "
            f"catalog (on the command line, --catalog to its address), or give the table's URI. "
            f"If it is a folder, write './{table}'."
        )
    ]


def _read_problems(read: object) -> list[str]:
    if read in ("offset", "data_interval"):
        return []
    return [f"read must be 'offset' or 'data_interval', got {read!r}."]
