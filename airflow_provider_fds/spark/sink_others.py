"""What commits of others in a sink mean for a stream: another stream of its name, or rows that were taken out.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Set, Tuple

from airflow_provider_fds.spark.failures import RefusalError
from airflow_provider_fds.spark.history import History, SinkCommit, SinkLog, parse_commit

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaSink

#: Commits that are read to find out whose rows were taken out; if they do not tell, the stream's may be among them.
_MOST_READ = 50

#: More warnings than this are one more.
_MOST_TOLD = 5

#: Operations that write the rows of their own input and no others.
_OWN_ROWS = ("WRITE", "STREAMING UPDATE", "CREATE TABLE AS SELECT", "COPY INTO")


def refuse_namesakes(history: History, path: str, stream: str, uuid: str, others: Sequence[str]) -> None:
    """Refuse a sink into which another stream of the same name writes: it would load the same rows.

    Args:
        history: The sink's commits.
        path: The sink, for the message.
        stream: Name of the stream.
        uuid: Its uuid.
        others: Uuids that a person knows to be of streams that load other rows.

    Raises:
        RefusalError: names the version and the uuid of the other stream.
    """
    for commit in history.commits:
        told = commit.metadata
        if told is None or told.get("stream") != stream or told.get("uuid") in (uuid, *others):
            continue
        raise RefusalError(
            "SinkOfNamesake",
            f"stream {stream!r} (uuid {uuid}): version {commit.version} of the sink {path} was written by another "
            f"stream of the same name (uuid {told.get('uuid')}), whose ledger is in another staging folder. Both "
            "would load the same rows. Let both runs use one staging folder, or give this stream another name and "
            "sink; if the other stream loads different rows, say so on this sink: "
            f"other_streams=['{told.get('uuid')}']",
        )


class RowsTaken:
    """Watches a sink for commits of others that take out rows which the stream has loaded.

    Args:
        sink: Says whether that is an error.
        path: The sink.
        log: Its log.
        breaking_too: Whether a RESTORE or REPLACE counts; where it is refused it does not.
    """

    def __init__(self, sink: DeltaSink, path: str, log: SinkLog, *, breaking_too: bool) -> None:
        self._breaking_too = breaking_too
        self._fails = sink.on_sink_overwritten == "fail"
        self._path = path
        self._log = log
        self._found: Dict[int, str] = {}
        self._told: Set[int] = set()
        self._judged: Dict[int, bool] = {}

    def look(self, history: History, since: int, stream: str) -> None:
        """Look at the commits after version ``since`` (exclusive).

        Raises:
            RefusalError: rows were taken out, and the sink says that this is an error.
        """
        if history.oldest_version > since + 1:
            self._found.setdefault(
                -since,
                f"the log of the sink {self._path} begins at version {history.oldest_version}: it does not say "
                f"any more whether versions {since + 1} to {history.oldest_version - 1} took out rows of stream "
                f"{stream!r}. Compare the sink with the source, or keep the sink's log for longer "
                "(delta.logRetentionDuration)",
            )
        for commit in reversed(history.commits):
            if commit.version <= since or not self._takes(commit):
                continue
            mode = commit.parameters.get("mode")
            what = commit.operation + ("" if mode is None else f", mode {mode}")
            message = (
                f"version {commit.version} of the sink {self._path} ({what}), by another writer, took out rows that "
                f"stream {stream!r} may have loaded. FDS does not load them again by itself. "
            )
            rewind = f"`fds rewind {stream} --to-version N --why …` loads them again"
            if self._fails:
                raise RefusalError(
                    "SinkOverwritten",
                    f"{message}{rewind}; on_sink_overwritten='warn' on the sink goes on without them",
                )
            self._found[commit.version] = f"{message}If they are missed, {rewind}"

    def news(self) -> Tuple[str, ...]:
        """Return the warnings that were not returned before."""
        fresh = [key for key in sorted(self._found) if key not in self._told]
        self._told.update(fresh)
        told = [self._found[key] for key in fresh[:_MOST_TOLD]]
        if more := fresh[_MOST_TOLD:]:
            told.append(f"The same holds for {len(more)} later versions of the sink {self._path}, up to {more[-1]}")
        return tuple(told)

    def _takes(self, commit: SinkCommit) -> bool:
        if commit.version not in self._judged:
            self._judged[commit.version] = takes_rows(
                commit, breaking_too=self._breaking_too
            ) and not _takes_only_rows_of_others(self._log, commit)
        return self._judged[commit.version]


def takes_rows(commit: SinkCommit, *, breaking_too: bool = False) -> bool:
    """Whether a commit of somebody else takes rows out of the table; OPTIMIZE and the like write them anew."""
    if commit.metadata is not None or not commit.removes_rows:
        return False
    if commit.is_breaking:
        return breaking_too
    if commit.operation == "UPDATE":
        return False
    if commit.operation == "MERGE":
        return _metric(commit, "numTargetRowsDeleted") != 0
    # an operation that found no row to take has copied those of the files it looked into
    has_only_copied = _metric(commit, "numDeletedRows") == 0 and (_metric(commit, "numCopiedRows") or 0) > 0
    return not has_only_copied


def _takes_only_rows_of_others(log: SinkLog, commit: SinkCommit) -> bool:
    """Whether all files that a commit removes were written by others, with rows of their own."""
    left = _paths(log.content(commit.version), "remove")
    for version in log.versions_before(commit.version)[:_MOST_READ]:
        if not left:
            break
        content = log.content(version)
        # a file that is removed and added in one commit has got a deletion vector: it was there before
        found = (left & _paths(content, "add")) - _paths(content, "remove")
        if found and not _writes_own_rows(parse_commit(version, content)):
            return False
        left -= found
    return not left


def _writes_own_rows(commit: SinkCommit) -> bool:
    if commit.metadata is not None or commit.operation not in _OWN_ROWS:
        return False
    # an overwrite by a predicate writes rows anew that are to stay; only Delta itself counts them
    may_copy = commit.removes_rows and "predicate" in commit.parameters and commit.metric("numOutputRows") is None
    return not may_copy and (_metric(commit, "numCopiedRows") or 0) == 0


def _metric(commit: SinkCommit, name: str) -> Optional[int]:
    """Return a metric under Delta's name for it, or under delta-rs's (``num_deleted_rows``)."""
    found = commit.metric(name)
    return commit.metric(re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)) if found is None else found


def _paths(content: bytes, action: str) -> Set[str]:
    """Return the files that a commit adds or removes for their rows."""
    start = b'{"' + action.encode() + b'"'
    found: Set[str] = set()
    for line in content.splitlines():
        if line.replace(b" ", b"", 1).startswith(start):
            value: Dict[str, Any] = json.loads(line)[action]
            if value.get("dataChange", True):
                found.add(value["path"])
    return found


__all__: List[str] = ["RowsTaken", "refuse_namesakes", "takes_rows"]
