"""The sink that is a user function. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_fds.sinks import options
from airflow_provider_fds.sinks.base import Delivery, Sink, Target
from airflow_provider_fds.sinks.delta import DeltaAppendSink

if TYPE_CHECKING:
    from collections.abc import Callable

#: Parts of a transaction's application id.
_WRITE = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class ForeachBatchSink(Sink):
    """Passes each batch to a function, as ``foreachBatch`` of Structured Streaming does: ``function(df, batch)``.

    ``df`` has the rows of the batch, with ``_commit_version`` and ``_commit_timestamp``. ``batch`` is a
    :class:`~airflow_provider_fds.spark.writers.foreach_batch.ForeachBatch`: with the write options
    ``batch.txn_options("bronze")``, Delta accepts a write of that name once per batch. The sink is for streams that
    read by offset.

    Contract:
        - A batch is done when the function has returned and the driver has reported it.
        - If the driver dies between the two, or the report is lost, the function is called again with the same rows and
          the same transactions: at least once. Each write to a Delta table with ``.options(**batch.txn_options(name))``
          is applied exactly once; other side effects of the function may happen again.
        - An exception in the function fails the batch; the error names the file and line.

    Tables:
        - If ``writes`` names the table of a write, FDS checks before each call that the table keeps transactions long
          enough, reports after the call whether the write is there, and closes older epochs in the table.
        - FDS checks nothing for a write without a table. Its table must not set
          ``delta.setTransactionRetentionDuration``, or to ten years or more; otherwise Delta forgets the batch and
          loads it again when it is repeated.

    Misuse:
        - ``insertInto`` ignores the options, unless ``format("delta")`` comes before it.
        - Two writes to one table need two names.
        - FDS does not count the rows of a function.
        - A rewind or replan is refused while a run of the stream may still be active. If no table shows which writes
          landed, it asks for that.

    Change feed:
        A commit that both adds and removes rows arrives in one call, even if it exceeds the limits, because the
        function may apply the rows by key. ``whole_commits=False`` on the stream lets the limits cut it, for a function
        that only appends. The limits cut commits that only add rows, unless the stream has ``whole_commits=True``.

    Args:
        function: ``"pkg.module:function"``; ship its module with ``py_files`` of the task or install it on the driver.
            It returns nothing, or the number of rows it wrote, for the run's result.
        writes: The writes that the function makes to Delta tables: names, or a mapping of each name to the URI or path
            of its table (``None`` if unknown).
        other_streams: UUIDs of streams whose ledgers are in other staging folders and that also write to a named table.
    """

    kind: ClassVar[str] = "foreach_batch"
    target: ClassVar[Target] = "function"
    delivery: ClassVar[Delivery] = "at_least_once"
    needs_whole_commits: ClassVar[bool] = True

    function: str
    writes: tuple[str, ...] | Mapping[str, str | None] = ()
    other_streams: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        options.function(self.function, "ForeachBatchSink: function")
        given = self.writes or ()
        writes = options.names(tuple(given) if isinstance(given, Mapping) else given, "ForeachBatchSink: writes")
        object.__setattr__(self, "writes", dict(given) if isinstance(given, Mapping) else writes)
        uuids = options.uuids(self.other_streams, "ForeachBatchSink: other_streams")
        object.__setattr__(self, "other_streams", uuids)
        for table in self.tables.values():
            # refuse locations that a sink of FDS would refuse
            DeltaAppendSink(table)
        if wrong := [name for name in writes if not _WRITE.fullmatch(name)]:
            raise ValueError(
                f"ForeachBatchSink: invalid names in writes: {', '.join(map(repr, wrong))}. The name of a write "
                "has at most 100 letters, digits, '.', '_' and '-'"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the writes."""
        return tuple(self.writes)

    @property
    def tables(self) -> dict[str, str]:
        """URI or path of the table of each write that has one."""
        writes = self.writes if isinstance(self.writes, Mapping) else {}
        return {name: table for name, table in writes.items() if table is not None}

    @property
    def known_tables(self) -> tuple[str, ...]:
        """URI or path of each named table."""
        return tuple(self.tables.values())

    @property
    def others(self) -> tuple[str, ...]:
        """UUIDs of streams in other staging folders that are known to write to a named table."""
        return self.other_streams

    def located(self, place: Callable[[str], str]) -> ForeachBatchSink:
        """Return a copy with each table replaced by ``place(table)``."""
        if not self.tables:
            return self
        return replace(
            self, writes={name: place(self.tables[name]) if name in self.tables else None for name in self.names}
        )

    def identity(self) -> dict[str, str]:
        """Return the identity that a stream is bound to: the function."""
        return {"kind": self.kind, "target": self.function}

    def rendered(self, render: Callable[[str], str]) -> ForeachBatchSink:
        """Return a copy with its tables rendered by ``render`` (Airflow's templates)."""
        return self.located(render)
