"""Whether the sink still has what the stream has loaded, without Spark: for runs without new data, and for statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.errors import BatchRejectedError, FdsError, LogRewoundError, TableNotFoundError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

#: Commits of others since the stream's last one that are read, the newest first.
_MOST_READ: Final = 64


class SinkNow(NamedTuple):
    """What became of the rows that a stream has loaded.

    Attributes:
        problem: Why loaded rows are missing, or may be; ``None`` if the log does not say so.
        warning: What another writer removed since the stream's last commit, or ``None``.
    """

    problem: FdsError | None = None
    warning: str | None = None


def sink_now(connected: ConnectedStream, state: StreamState) -> SinkNow:
    """Compare a Delta sink with the stream's last commit in it; costs one request if nobody has committed since.

    A sink that cannot be read from here is not compared. Of many commits since then, the newest are read.
    """
    sink, known = state.sink, state.sink_version
    if sink is None or not sink.has_log or known is None or state.reads_by_interval:
        return SinkNow()
    from airflow_provider_fds.batch.sink.sink_account import kept
    from airflow_provider_fds.batch.sink.sink_commit import takes_rows
    from airflow_provider_fds.batch.transactions import txn_app_id
    from airflow_provider_fds.stream.sink_record.sink_commits import sink_commit

    log = DeltaLog(connected.open_sink(sink.target))
    try:
        newest = log.verify_position(known + 1)
        first = max(known + 1, newest + 1 - _MOST_READ)
        commits = [sink_commit(commit) for commit in log.commits(first, newest)] if first <= newest else []
    except TableNotFoundError:
        again = (
            "If its folder is not mounted here, mount it; if the table was removed, restore it, or load everything "
            f"into a new one: `fds rewind {state.name} --to start --sink-rows keep --why …`"
        )
        return SinkNow(_problem(state, "is missing", again, Reason.SINK_MISSING))
    except LogRewoundError:
        return SinkNow(_problem(state, "is at an earlier version: it was restored from a copy", _again(state)))
    except FdsError:
        # it cannot be read from here, or its log does not tell
        return SinkNow()
    account = kept(commits, txn_app_id(state.uuid))
    if account.place(known) != "there":
        at = account.undone_at(known) or account.broken_at
        done = next(commit for commit in commits if commit.version == at)
        return SinkNow(_problem(state, f"had a {done.operation} in version {at}", _again(state)))
    taken = next((commit for commit in commits if takes_rows(commit, state.uuid)), None)
    return SinkNow(warning=None if taken is None else _warning(state, taken))


def find_sink(connected: ConnectedStream, state: StreamState) -> Literal["there", "gone", "unknown"]:
    """Return whether the stream's sink is there, as seen from here; ``unknown`` if it cannot be read.

    A function's sink is there if each table that the stream has written still has its writes.
    """
    sink = state.sink
    if sink is None or sink.is_user_job:
        return "unknown"
    try:
        if sink.is_function:
            from airflow_provider_fds.stream.sink_record.function_tables import gone_tables, read_tables

            # a table without the stream's writes is another one
            return "gone" if gone_tables(state, read_tables(state, connected.open_sink, ())) else "there"
        if not sink.has_log:
            return "unknown"
        DeltaLog(connected.open_sink(sink.target)).latest()
    except TableNotFoundError:
        return "gone"
    except FdsError:
        return "unknown"
    return "there"


def _problem(state: StreamState, what: str, again: str, reason: Reason = Reason.SINK_REPLACED) -> FdsError:
    assert state.sink is not None  # noqa: S101  # the caller has checked it
    return BatchRejectedError(
        f"stream {state.name!r}: the sink {state.sink.target} {what}, after the stream wrote version "
        f"{state.sink_version}, so loaded rows may be missing. {again}",
        table=state.table or None,
        reason=reason,
    )


def _again(state: StreamState) -> str:
    rewind = f"`fds rewind {state.name} --to batch:N --sink-rows keep --why …`"
    return (
        f"Load them again from the first missing batch on: {rewind}; if none is missing, `fds replan {state.name} "
        "--why …` lets the next run check that and continue"
    )


def _warning(state: StreamState, taken: SinkCommit) -> str:
    assert state.sink is not None  # noqa: S101  # the caller has checked it
    return (
        f"version {taken.version} of the sink {state.sink.target} ({taken.operation}), by another writer, removed rows "
        f"that stream {state.name!r} may have loaded"
    )
