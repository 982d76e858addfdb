"""What the fence of a rewind or a reset removes from the sink, as requested by a person."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.values import Removal
from airflow_provider_fds.stream.repeated import removal_problem

if TYPE_CHECKING:
    from airflow_provider_fds.delta.log import DeltaLog
    from airflow_provider_fds.ledger.log import Ledger
    from airflow_provider_fds.source.offset import Offset


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person requested for the rows in the sink."""

    is_delete: bool
    sink: str | None
    is_forced: bool

    @property
    def what(self) -> Literal["rows", "all"] | None:
        """What is to be removed: ``rows`` that are read again, ``all``, or nothing."""
        if self.is_delete:
            return "rows"
        return "all" if self.sink == "empty" else None

    def check(self, name: str) -> None:
        """Refuse contradictory arguments."""
        if self.sink not in (None, "keep", "empty"):
            raise ConfigurationError(f"stream {name!r}: --sink must be keep or empty, got {self.sink!r}.")
        if self.is_delete and self.sink is not None:
            raise ConfigurationError(f"stream {name!r}: --delete and --sink {self.sink} contradict each other.")
        if self.is_forced and self.what is None:
            raise ConfigurationError(
                f"stream {name!r}: --force-sink is for --delete and --sink empty, which remove rows."
            )


def removal_of(
    ledger: Ledger,
    sink_log: DeltaLog | None,
    reason: Literal["rewind", "reset"],
    asked: Asked,
    start: Offset | None,
    *,
    is_known: bool,
) -> Removal | None:
    """Return what the fence is to remove, or ``None`` if nothing.

    Args:
        ledger: The stream's ledger.
        sink_log: The sink's log, or ``None`` if it cannot be reached from here.
        reason: The kind of request.
        asked: What the person requested.
        start: Where the stream continues (exclusive); ``None``: from its very beginning.
        is_known: Whether ``start`` is known here.

    Raises:
        ConfigurationError: The arguments contradict each other or the sink, or the rows cannot be told from others.
    """
    name, sink = ledger.state.name, ledger.state.sink
    asked.check(name)
    if sink is not None and sink.merges and asked.is_delete:
        raise ConfigurationError(
            f"stream {name!r} merges into {sink.target}. A merge does not keep the rows that it replaced, so "
            "--delete would lose rows. Use --sink empty, which reads everything again, or --sink keep."
        )
    if sink is not None and sink.merges and asked.sink is None:
        raise ConfigurationError(
            f"stream {name!r} merges into {sink.target}, where a row whose key the source no longer has stays "
            f"after a {reason}: its delete is not read. Say what happens to the sink: --sink empty (its rows are "
            "removed, or closed with scd=2, before the new epoch begins) or --sink keep."
        )
    what = asked.what
    if what is None:
        return None
    option = "--delete" if what == "rows" else "--sink empty"
    if sink is None or sink.is_user_defined:
        bound = (
            "is not bound to a sink"
            if sink is None
            else f"writes through {sink.describe()}, whose tables FDS does not know"
        )
        raise ConfigurationError(f"stream {name!r} {bound}, so {option} is not available; remove the rows yourself.")
    problem = "the version at that time is unknown" if not is_known else None
    problem = problem or removal_problem(ledger, what, start) or _sink_problem(sink_log, what)
    if problem is not None:
        raise ConfigurationError(
            f"stream {name!r}: {option} is not available: {problem}. Omit it to see how else the rows can be removed."
        )
    from_version = start.version if what == "rows" and start is not None else None
    return Removal(what=what, from_version=from_version, is_forced=asked.is_forced)


def _sink_problem(sink_log: DeltaLog | None, what: str) -> str | None:
    """Return why the sink does not allow the removal, or ``None`` if it does; the fence checks this again."""
    if sink_log is None:
        return None
    metadata = sink_log.state_at(sink_log.latest()).metadata
    if (metadata.property("delta.appendOnly") or "").lower() == "true":
        return f"the sink {sink_log.table_uri} has delta.appendOnly=true"
    names = {field["name"].lower() for field in json.loads(metadata.schemaString)["fields"]}
    if what == "rows" and "_source_version" not in names:
        return f"the sink {sink_log.table_uri} has no column _source_version (provenance=True writes it)"
    return None


__all__ = ["Asked", "removal_of"]
