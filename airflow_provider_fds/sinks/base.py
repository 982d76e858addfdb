"""The base of all sinks, wherever their rows go. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.sinks.constants import Constant

Target = Literal["delta_table", "function", "database_table", "other_table"]
Delivery = Literal["transaction", "token", "at_least_once"]


@dataclass(frozen=True)
class Sink:
    """Where a stream's batches go: a value that is declared in a DAG file and used by the writer on the Spark driver.

    A subclass with a ``kind`` declares its capabilities in the attributes below. The other parts of FDS ask for these
    capabilities, not for the class. The writer of a sink is a class of the same name, see ``spark/writers/writer.py``.
    """

    #: Name of the class in job specs and in the ledger.
    kind: ClassVar[str]
    #: What it writes to: a Delta table, whose log is evidence for every batch; a user function; a table of a database,
    #: where FDS keeps an account of the batches beside it; or a table of another format, which FDS reads only through
    #: Spark.
    target: ClassVar[Target]
    #: Scheme with which the target of its identity begins, if it is not the URI of a Delta table.
    scheme: ClassVar[str | None] = None
    #: What keeps a repeated batch from being written twice: a transaction of the table refuses it, or the writer looks
    #: for a token before it writes. Without either it is written at least once. ``fds status`` shows it.
    delivery: ClassVar[Delivery]
    #: Whether a run replaces the rows of an earlier run of its data interval.
    replaces: ClassVar[bool] = False
    #: Whether the sink is correct only if batches arrive in the order of the source's commits. If not, the sink also
    #: accepts data intervals, in any order and in parallel.
    needs_order: ClassVar[bool] = True
    #: Whether it applies rows by key, or may do so. It then needs the rows before and after a commit of the change feed
    #: in one batch.
    needs_whole_commits: ClassVar[bool] = False
    #: Whether a repeated row replaces the row with its key.
    needs_keys: ClassVar[bool] = False
    #: Whether the commit that closes old epochs can remove rows that the new one reads again.
    can_remove_rows: ClassVar[bool] = False

    @property
    def table_uri(self) -> str | None:
        """URI or path of the Delta table that FDS itself writes, or ``None`` if it writes none."""
        return None

    @property
    def known_tables(self) -> tuple[str, ...]:
        """URIs or paths of all Delta tables that a batch is known to be written to."""
        return () if self.table_uri is None else (self.table_uri,)

    @property
    def connection_id(self) -> str | None:
        """Airflow connection for the sink's storage; ``None`` to use the stream's connection."""
        return None

    @property
    def database_conn_id(self) -> str | None:
        """Airflow connection of the database that the driver writes to, ``None`` if there is none."""
        return None

    @property
    def others(self) -> tuple[str, ...]:
        """UUIDs of streams in other staging folders that are known to write to the same table."""
        return ()

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """Columns that each batch must have, as far as the sink's arguments say."""
        return ()

    @property
    def refused_columns(self) -> tuple[str, ...]:
        """Columns that no batch may have, as far as the sink's arguments say, because the sink adds them."""
        return ()

    @property
    def takes_all_rows(self) -> bool:
        """Whether every row of a batch is read unchanged and counted."""
        return False

    @property
    def writes_rows_as_they_are(self) -> bool:
        """Whether the sink writes as many rows as the batch has, so that FDS can check the log's own count."""
        return False

    @property
    def may_change_rows(self) -> bool:
        """Whether Spark may get other rows when it makes those of a batch again: by user code, or from other tables."""
        return False

    @property
    def leaves_session_as_it_is(self) -> bool:
        """Whether a write changes no setting of the session and calls no user function."""
        return False

    @property
    def needs_log_store(self) -> bool:
        """Whether Delta commits to it need a log store that loses no commits when two drivers write at once."""
        return False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the writes that a function makes; each write has its own transaction."""
        return ()

    @property
    def tables(self) -> dict[str, str]:
        """URI or path of the table of each named write that has one."""
        return {}

    def check_predicates(self) -> None:
        """Raise ``ValueError`` if a predicate is anything other than an expression over columns.

        Nothing is checked if the user allowed other expressions.
        """

    def located(self, place: Callable[[str], str]) -> Sink:  # noqa: ARG002 - for sinks with tables
        """Return a copy with each table replaced by ``place(table)``, its URI as Spark reaches it."""
        return self

    def for_versions(self, first: int, last: int) -> Sink:  # noqa: ARG002 - for sinks that replace
        """Return a copy for an interval of these versions, both inclusive; if it is empty, ``last < first``."""
        return self

    def identity(self) -> dict[str, str]:
        """Return the identity that a stream is bound to.

        It is ``kind``, and a ``target`` that distinguishes it from other sinks. Sinks with different identities are
        different sinks.
        """
        raise NotImplementedError

    def may_hold_rows(self, first: int, last: int, *, is_first_load: bool) -> bool:  # noqa: ARG002 - by version only
        """Whether a run without rows may have rows to remove, in a sink that replaces.

        Args:
            first: First version of its interval.
            last: Last version, inclusive; below the first if the interval has none.
            is_first_load: Whether no earlier run of the stream has planned the interval.
        """
        return True

    @classmethod
    def merges_into(cls, target: str) -> bool:  # noqa: ARG003 - for sinks that are bound to a mode
        """Whether the sink of a binding's ``target`` applies rows by key."""
        return cls.needs_keys

    @classmethod
    def replaces_in(cls, target: str) -> bool:  # noqa: ARG003 - for sinks that are bound to a mode
        """Whether a run replaces rows of its data interval in the sink of a binding's ``target``."""
        return cls.replaces

    @classmethod
    def removes_from(cls, target: str) -> bool:  # noqa: ARG003 - for sinks that are bound to a mode
        """Whether a fence can remove rows from the sink of a binding's ``target``."""
        return cls.can_remove_rows

    @classmethod
    def of_target(cls, target: str) -> Sink:
        """Return a sink with the ``target`` of an identity, which is enough to close epochs in it."""
        raise NotImplementedError(f"{cls.__name__} is bound by more than {target!r}")

    def describe(self) -> str:
        """Return where the rows go, for messages: the target of the sink's identity."""
        return self.identity()["target"]

    def rendered(self, render: Callable[[str], str]) -> Sink:
        """Return a copy with its template strings rendered by ``render`` (Airflow's templates)."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the sink as JSON-compatible values, without anything secret."""
        return {"kind": self.kind, **asdict(self)}

    def serialize(self) -> dict[str, Any]:
        """Return what Airflow shows for the sink in a serialised DAG and on the task's page.

        These are JSON values, with tuples as lists: Airflow 3.1 sends them to its API server as they are, and fails the
        task if there is a tuple in them.
        """
        shown: dict[str, Any] = json.loads(json.dumps(self.to_dict()))
        return shown


class RowSink(Sink):
    """Base of sinks that write the rows of a batch themselves, chosen by the arguments below."""

    where: str | None
    unsafe_sql: bool
    transform: str | None
    columns: tuple[str, ...]
    constant_columns: Mapping[str, Constant]
    other_streams: tuple[str, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """UUIDs of streams in other staging folders that are known to write to the same table."""
        return self.other_streams

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """The columns to write, unless ``transform`` may add them."""
        return self.columns if self.transform is None else ()

    @property
    def refused_columns(self) -> tuple[str, ...]:
        """The columns with constants, unless ``columns`` or ``transform`` may leave the batch's own out."""
        return () if self.columns or self.transform is not None else tuple(self.constant_columns)

    @property
    def takes_all_rows(self) -> bool:
        """Whether every row of a batch is read unchanged and counted."""
        return self.where is None and self.transform is None

    @property
    def writes_rows_as_they_are(self) -> bool:
        """Whether the sink writes as many rows as the batch has, so that FDS can check the log's own count."""
        return self.takes_all_rows

    @property
    def may_change_rows(self) -> bool:
        """Whether Spark may get other rows when it makes those of a batch again: by user code, or from other tables."""
        return self.transform is not None or (self.where is not None and self.unsafe_sql)
