"""What the fence of a rewind removes from the sink, as requested by a person."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from airflow_provider_fds.batch.sink.shared_sink import why_shared
from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.ledger.values import Removal
from airflow_provider_fds.stream.epochs.rows_read_again import reads_again, removal_problem
from airflow_provider_fds.stream.sink_record.sink_commits import newest_first

if TYPE_CHECKING:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import SinkBinding
    from airflow_provider_fds.stream.actions.rewind_target import Destination


#: What may become of the rows in the sink that are read again.
SinkRows = Literal["keep", "delete", "empty"]

#: Number of commits of the sink that a request reads; the fence reads all.
_MOST_READ: Final = 1000


def removal_of(
    ledger: Ledger,
    sink_log: DeltaLog | None,
    destination: Destination,
    sink_rows: SinkRows | None,
    *,
    is_forced: bool,
) -> Removal | None:
    """Return what the fence is to remove, or ``None`` if nothing.

    Args:
        ledger: The stream's ledger.
        sink_log: The sink's log, or ``None`` if it cannot be reached from here.
        destination: Where the rewind leads.
        sink_rows: What the person requested for the rows in the sink; ``None``: nothing.
        is_forced: Whether to remove rows even if others may have written to the sink.

    Raises:
        ConfigurationError: The arguments contradict each other or the sink, or the rows cannot be told from others.
    """
    name, sink, start = ledger.state.name, ledger.state.sink, destination.start
    to_start = destination.reason == "reset"
    if is_forced and sink_rows not in ("delete", "empty"):
        raise ConfigurationError(
            f"stream {name!r}: --force-sink is for --sink-rows delete and --sink-rows empty, which remove rows."
        )
    if sink is not None and sink_rows in ("delete", "empty"):
        _refuse_unable(name, sink, f"--sink-rows {sink_rows}")
    if to_start and sink_rows == "delete":
        raise ConfigurationError(
            f"stream {name!r}: --sink-rows delete removes the rows from a version on, and --to start is no version. "
            "Use --sink-rows empty, which removes all rows, or --sink-rows keep."
        )
    if sink is not None and sink.merges and sink_rows == "delete":
        raise ConfigurationError(
            f"stream {name!r} merges into {sink.target}. A merge does not keep the rows that it replaced, so "
            "--sink-rows delete would lose rows. Use --sink-rows empty, which reads everything again, or "
            "--sink-rows keep."
        )
    if sink_rows is None:
        _require_word(ledger, destination)
    if sink_rows not in ("delete", "empty"):
        return None
    what: Literal["rows", "all"] = "rows" if sink_rows == "delete" else "all"
    option = f"--sink-rows {sink_rows}"
    if sink is None:
        raise ConfigurationError(
            f"stream {name!r} is not bound to a sink, so {option} is not available; remove the rows yourself."
        )
    problem = "the version at that time is unknown" if not destination.is_known else None
    problem = problem or removal_problem(ledger, what, start) or _sink_problem(sink_log, what)
    if problem is not None:
        raise ConfigurationError(
            f"stream {name!r}: {option} is not available: {problem}. Use --sink-rows keep, or `fds rewind {name} --to "
            "start --sink-rows empty --why …`, which loads everything again."
        )
    if sink_log is not None and not is_forced:
        _refuse_shared(ledger.state, sink_log, option)
    from_version = start.version if what == "rows" and start is not None else None
    return Removal(what=what, from_version=from_version, is_forced=is_forced)


def _refuse_unable(name: str, sink: SinkBinding, option: str) -> None:
    """Refuse a removal from a sink whose rows no fence can remove, and say what is possible instead."""
    if sink.can_remove_rows:
        return
    if sink.merges:
        raise ConfigurationError(
            f"stream {name!r} merges into {sink.target}, so {option} is not available: a row there may have values "
            "that the source does not have. Use --sink-rows keep, which merges the rows again by their keys. A row "
            "whose key the source no longer has stays; delete it yourself."
        )
    bound = (
        f"writes through {sink.describe()}, whose tables FDS does not know"
        if sink.is_user_defined
        else f"writes to {sink.describe()}, from which FDS removes no rows"
    )
    raise ConfigurationError(f"stream {name!r} {bound}, so {option} is not available; remove the rows yourself.")


def _require_word(ledger: Ledger, destination: Destination) -> None:
    """Refuse a request that reads committed rows again and does not say what becomes of those in the sink."""
    name, sink = ledger.state.name, ledger.state.sink
    if sink is not None and sink.merges:
        ways = (
            "Say what becomes of its rows: --sink-rows empty (they are removed, or closed with scd=2, before the new "
            "epoch begins) or --sink-rows keep."
            if sink.can_remove_rows
            else "FDS removes no rows from this sink: say --sink-rows keep, and delete such a row yourself."
        )
        raise ConfigurationError(
            f"stream {name!r} merges into {sink.target}, where a row whose key the source no longer has stays "
            f"after a rewind: its delete is not read. {ways}"
        )
    if not ledger.state.reads_by_interval and reads_again(ledger, destination.start):
        delete = "--sink-rows delete (the next run deletes exactly these rows; the sink needs provenance), "
        delete = "" if destination.reason == "reset" else delete
        if sink is not None and not sink.can_remove_rows:
            raise ConfigurationError(
                f"stream {name!r}: the rewind reads rows again that are in the sink, from which FDS removes no rows. "
                "Remove them yourself, and say --sink-rows keep."
            )
        raise ConfigurationError(
            f"stream {name!r}: the rewind reads rows again that are in the sink. Say what becomes of them: "
            f"{delete}--sink-rows empty (the next run removes all rows), or --sink-rows keep (they stay, and are "
            "duplicated unless you remove them)."
        )


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


def _refuse_shared(state: StreamState, sink_log: DeltaLog, option: str) -> None:
    """Refuse a removal that may take rows of others; the fence checks this again."""
    try:
        earliest = sink_log.earliest()
        commits = islice(newest_first(sink_log, earliest, sink_log.latest()), _MOST_READ)
        why = why_shared(commits, earliest, path=sink_log.table_uri, stream=state.name, uuid=state.uuid)
    except FdsError:
        # a log with a gap or a damaged commit
        return
    if why is not None:
        raise ConfigurationError(
            f"stream {state.name!r}: {option} is not available: {why}. If their rows may be removed too, add "
            "--force-sink (operator: force_sink=True). Otherwise use --sink-rows keep."
        )
