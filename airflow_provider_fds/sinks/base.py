"""What every sink is, wherever its rows go. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

Target = Literal["delta_table", "function", "other_table"]
Delivery = Literal["transaction", "token", "at_least_once"]


@dataclass(frozen=True)
class Sink:
    """Where the batches of a stream go: a value, declared in a DAG file and written on the Spark driver.

    A subclass with a ``kind`` says below what the other parts of FDS have to know of it; they ask for this, not for
    its class. Its writer is a class of the same name, see ``spark/writers.py``.
    """

    #: Name of the class in job specs and in the ledger.
    kind: ClassVar[str]
    #: What it writes to: a Delta table, whose log is evidence for every batch; a function of the user's; or a table of
    #: another format, of which FDS reads nothing outside Spark.
    target: ClassVar[Target]
    #: How a batch that is repeated lands once: by a transaction of the table that refuses it, by a token that the
    #: writer looks for before it writes, or not: then it lands at least once.
    delivery: ClassVar[Delivery]
    #: Whether a run takes the place of what an earlier run of its data interval has written.
    replaces: ClassVar[bool] = False
    #: Whether batches must come in the order of the source's commits for the sink to end right. If not, the sink takes
    #: data intervals too, in any order and side by side.
    needs_order: ClassVar[bool] = True
    #: Whether it decides per key, or may do so: then it has to see what was there before a commit of the change feed
    #: together with what is there after it, in one batch.
    needs_whole_commits: ClassVar[bool] = False
    #: Whether a row that comes again takes the place of the one with its key.
    needs_keys: ClassVar[bool] = False

    @property
    def table_uri(self) -> str | None:
        """URI or path of the Delta table that FDS itself writes, ``None`` if it writes none."""
        return None

    @property
    def known_tables(self) -> tuple[str, ...]:
        """URIs or paths of all Delta tables that a batch is known to be written to."""
        return () if self.table_uri is None else (self.table_uri,)

    @property
    def connection_id(self) -> str | None:
        """Airflow connection for the sink's storage, ``None``: the stream's."""
        return None

    @property
    def others(self) -> tuple[str, ...]:
        """Uuids of streams of other staging folders that are known to write to the same table."""
        return ()

    @property
    def takes_all_rows(self) -> bool:
        """Whether every row of a batch is read, as it is, and counted."""
        return False

    @property
    def writes_rows_as_they_are(self) -> bool:
        """Whether as many rows are written as the batch has, so that the log's own count can be checked."""
        return False

    @property
    def leaves_session_as_it_is(self) -> bool:
        """Whether a batch is written without setting anything for the session, and without a function of the user's."""
        return False

    @property
    def needs_log_store(self) -> bool:
        """Whether Delta commits to it need a log store that does not lose commits of drivers side by side."""
        return False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the writes that a function makes, each of which has a transaction of its own."""
        return ()

    @property
    def tables(self) -> dict[str, str]:
        """URI or path of the table of each named write that has one."""
        return {}

    def check_predicates(self) -> None:
        """Raise ``ValueError`` if a predicate is more than an expression of columns, unless that was allowed."""

    def located(self, place: Callable[[str], str]) -> Sink:  # noqa: ARG002 - for sinks with tables
        """Return a copy whose tables went through ``place``, which returns URIs as Spark reaches them."""
        return self

    def for_versions(self, first: int, last: int) -> Sink:  # noqa: ARG002 - for sinks that replace
        """Return a copy for an interval of these versions (both inclusive; the last is below the first for none)."""
        return self

    def identity(self) -> dict[str, str]:
        """Return what binds the stream to this sink: another identity is another sink."""
        raise NotImplementedError

    def rendered(self, render: Callable[[str], str]) -> Sink:
        """Return a copy whose texts that may be templates went through ``render`` (Airflow's templates)."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the sink as JSON-able values, without anything secret."""
        return {"kind": self.kind, **asdict(self)}

    def serialize(self) -> dict[str, Any]:
        """Return what Airflow shows of the sink in a serialised DAG."""
        return self.to_dict()
