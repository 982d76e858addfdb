"""What other writers' commits in a sink mean for a stream: its name, or its rows, twice; or rows that were removed.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Set, Tuple

from airflow_provider_fds.batch.sink.doubled_rows import UNLESS, describe_doubled
from airflow_provider_fds.batch.sink.loaded_streams import pieces
from airflow_provider_fds.batch.sink.sink_commit import (
    SinkCommit,
    changes_rows,
    file_actions,
    is_of_stream,
    metric_of,
    parse_commit,
    takes_rows,
)
from airflow_provider_fds.batch.transactions import txn_app_id
from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.loaded_streams import Loaded
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.sinks import DeltaSink
    from airflow_provider_fds.spark.sink_log.history import History, SinkLog

#: Number of commits read to find whose rows were removed; if they do not tell, the stream's may be among them.
_MOST_READ = 50

#: Further warnings are combined into one.
_MOST_TOLD = 5

#: Operations that write only the rows of their own input.
_OWN_ROWS = ("WRITE", "STREAMING UPDATE", "CREATE TABLE AS SELECT", "COPY INTO")

#: What another writer's commit has done to rows.
_TOOK_OUT = "removed rows that stream"
_CHANGED = "changed rows that stream"


def refuse_namesakes(history: History, path: str, stream: str, uuid: str, others: Sequence[str]) -> None:
    """Refuse a sink into which another stream of the same name writes: both would load the same rows.

    Args:
        history: The sink's commits.
        path: The sink, for the message.
        stream: Name of the stream.
        uuid: Its uuid.
        others: UUIDs that a person has declared to be streams that load other rows.

    Raises:
        RefusalError: Names the version and the uuid of the other stream.
    """
    for commit in history.commits:
        told = commit.metadata or commit.write
        if told is None or told.get("stream") != stream or told.get("uuid") in (uuid, *others):
            continue
        raise RefusalError(
            Reason.SINK_OF_NAMESAKE,
            f"stream {stream!r} (uuid {uuid}): version {commit.version} of the sink {path} was written by another "
            f"stream of the same name (uuid {told.get('uuid')}), whose ledger is in another staging folder. Both "
            "would load the same rows. Use one staging folder for both, or give this stream another name and "
            "sink; if the other stream loads different rows, declare it on this sink: "
            f"other_streams=['{told.get('uuid')}']",
        )


def refuse_overlap(loaded: Loaded, batch: BatchSpec, path: str, others: Sequence[str]) -> None:
    """Refuse a batch if another stream has loaded rows of it, or of what the stream has loaded, into the sink.

    Args:
        loaded: What the streams have loaded.
        batch: The batch, which has not landed.
        path: The sink, for the message.
        others: UUIDs that a person has declared to be streams that load other rows.

    Raises:
        RefusalError: Names the ranges of both streams, and what to do.
    """
    found = loaded.overlap(batch.uuid, pieces(batch.start, batch.end, -1), others)
    if found is None:
        return
    mine, other, theirs = found
    if mine.sink_version < 0:
        raise RefusalError(
            Reason.SINK_HAS_ROWS,
            f"stream {batch.stream!r} would load {mine.describe()} of the source into the sink {path}, but stream "
            f"{other!r} has loaded {theirs.describe()} into it (version {theirs.sink_version}). "
            "Nothing was written, because rows would be duplicated, or replaced. Choose a range that does not "
            f"overlap, or another sink; {UNLESS}",
        )
    raise RefusalError(Reason.SINK_HAS_ROWS, describe_doubled(batch.stream, mine, other, theirs, path))


class RowsTaken:
    """Watches a sink for commits of other writers that remove or change rows which the stream has loaded.

    Args:
        sink: Decides whether removed rows are an error.
        path: The sink.
        log: Its log.
        uuid: The stream's uuid; its own commits are ignored.
        breaking_too: Whether a RESTORE or REPLACE counts; not needed if such commits are refused anyway.
        way_on: The command that loads missing rows again.
    """

    def __init__(
        self, sink: DeltaSink, path: str, log: SinkLog, *, uuid: str, breaking_too: bool, way_on: str = ""
    ) -> None:
        self._breaking_too = breaking_too
        self._fails = sink.on_sink_overwritten == "fail"
        self._path = path
        self._log = log
        self._uuid = uuid
        self._way_on = way_on
        self._found: Dict[int, str] = {}
        self._told: Set[int] = set()
        self._judged: Dict[int, Optional[str]] = {}

    def check(self, history: History, since: int, stream: str, before: Optional[int] = None) -> None:
        """Check the commits after version ``since`` and before version ``before`` (both exclusive).

        Raises:
            RefusalError: Rows were removed, and the sink treats this as an error.
        """
        if history.oldest_version > since + 1:
            self._found.setdefault(
                -since,
                f"the log of the sink {self._path} begins at version {history.oldest_version}, so it no longer "
                f"shows whether {describe_range(since + 1, history.oldest_version - 1)} removed rows of stream "
                f"{stream!r}, for example by a RESTORE. Compare the sink with the source, or keep the sink's log "
                "for longer (delta.logRetentionDuration)",
            )
        # commits that a RESTORE has undone do not matter
        kept = None if self._breaking_too else history.kept(txn_app_id(self._uuid)).versions
        for commit in reversed(history.commits):
            is_of_the_time = since < commit.version and (before is None or commit.version < before)
            if not is_of_the_time or (kept is not None and commit.version not in kept):
                continue
            done = self._judge(commit)
            if done is None:
                continue
            mode = commit.parameters.get("mode")
            what = commit.operation + ("" if mode is None else f", mode {mode}")
            message = (
                f"version {commit.version} of the sink {self._path} ({what}), by another writer, {done} "
                f"{stream!r} may have loaded. FDS does not load them again automatically. "
            )
            if self._fails and done == _TOOK_OUT:
                raise RefusalError(
                    Reason.SINK_OVERWRITTEN,
                    f"{message}Load them again by {self._way_on}, or set on_sink_overwritten='warn' on the sink "
                    "to continue without them",
                )
            missed = "If they are needed" if done == _TOOK_OUT else "If they should be as they were loaded"
            self._found[commit.version] = f"{message}{missed}, load them again by {self._way_on}"

    def news(self) -> Tuple[str, ...]:
        """Return the warnings that were not returned before."""
        fresh = [key for key in sorted(self._found) if key not in self._told]
        self._told.update(fresh)
        told = [self._found[key] for key in fresh[:_MOST_TOLD]]
        if more := fresh[_MOST_TOLD:]:
            told.append(f"The same holds for {len(more)} later versions of the sink {self._path}, up to {more[-1]}")
        return tuple(told)

    def _judge(self, commit: SinkCommit) -> Optional[str]:
        """Return what a commit did to rows of the stream, or ``None`` if nothing."""
        if commit.version not in self._judged:
            done = None
            if takes_rows(commit, self._uuid, breaking_too=self._breaking_too):
                done = _TOOK_OUT
            elif changes_rows(commit, self._uuid):
                done = _CHANGED
            is_theirs = done is not None and _takes_only_rows_of_others(self._log, commit, self._uuid)
            self._judged[commit.version] = None if is_theirs else done
        return self._judged[commit.version]


def _takes_only_rows_of_others(log: SinkLog, commit: SinkCommit, uuid: str) -> bool:
    """Whether all files that a commit removes were written by others, with rows of their own."""
    left = _paths(log.content(commit.version), "remove")
    for version in log.versions_before(commit.version)[:_MOST_READ]:
        if not left:
            break
        content = log.content(version)
        # a file that one commit both removes and adds has got a deletion vector; it existed before
        found = (left & _paths(content, "add")) - _paths(content, "remove")
        if found and not _writes_own_rows(parse_commit(version, content), uuid):
            return False
        left -= found
    return not left


def intervals_replaced(log: SinkLog, commit: SinkCommit) -> List[str]:
    """Return the other data intervals of the stream whose rows a commit removed, if found in recent commits.

    If rows were copied, their origin is unknown, so such commits do not count.
    """
    told = commit.metadata or {}
    if not commit.removes_rows or "interval" not in told or (metric_of(commit, "numCopiedRows") or 0) > 0:
        return []
    left = _paths(log.content(commit.version), "remove")
    intervals: Set[str] = set()
    for version in log.versions_before(commit.version)[:_MOST_READ]:
        if not left:
            break
        content = log.content(version)
        if found := left & _paths(content, "add"):
            writer = parse_commit(version, content)
            theirs = writer.metadata or {}
            if theirs.get("uuid") == told["uuid"] and (metric_of(writer, "numCopiedRows") or 0) == 0:
                intervals.add(str(theirs.get("interval", told["interval"])))
            left -= found
    return sorted(intervals - {told["interval"]})


def _writes_own_rows(commit: SinkCommit, uuid: str) -> bool:
    """Whether the rows that a commit adds are those of another writer, which may be another stream."""
    if is_of_stream(commit, uuid) or commit.operation not in _OWN_ROWS:
        return False
    # an overwrite by a predicate also rewrites rows that stay; only Delta itself counts them
    may_copy = commit.removes_rows and "predicate" in commit.parameters and commit.metric("numOutputRows") is None
    return not may_copy and (metric_of(commit, "numCopiedRows") or 0) == 0


def _paths(content: bytes, action: str) -> Set[str]:
    """Return the files that a commit adds or removes together with their rows."""
    return {value["path"] for value in file_actions(content, action) if value.get("dataChange", True)}
