"""What a stream does with a commit: emit its files, skip it, or stop before it.

The whole commit is summarised first and then judged, so the order of its actions never matters. Source of the rules:
``validateCommitAndDecideSkipping`` of Delta's streaming source.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from airflow_provider_fds.errors import StoppedError, ViolationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.changes.change_recording import is_enabled, not_recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow_provider_fds.delta.actions import Action, CommitInfo, Metadata, Protocol
    from airflow_provider_fds.source.options.options import SourceOptions

_T = TypeVar("_T")

#: Maximum number of characters of ``commitInfo.operationParameters`` in an error.
_MAX_PARAMETERS: Final = 300

#: How to load a table again that was overwritten, with what becomes of the rows of the sink.
LOAD_ANEW: Final = (
    "`fds rewind STREAM --to start --sink-rows keep|empty --why …` loads the table again, as it is now if the stream "
    "has no start option (remove it first, otherwise the stream stops here again); with keep the sink keeps all its "
    "rows, so that those that are still in the table are duplicated, or merged again; with empty, if the sink allows "
    "it, the next run removes all rows of the sink first"
)

#: Metrics of a MERGE that are all "0" if no row changed; a missing metric proves nothing.
_MERGE_METRICS: Final = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


class CommitContent(msgspec.Struct, frozen=True):
    """The parts of a commit that matter for streaming.

    Attributes:
        version: Version of the commit.
        adds: Number of ``add`` actions that change data.
        removes: Number of ``remove`` actions that change data.
        operation: ``commitInfo.operation``, or ``None`` if the commit does not say.
        parameters: ``commitInfo.operationParameters``, or ``None`` if the commit has no parameters.
        metadata: ``metaData`` of the commit, if it has one.
        protocol: ``protocol`` of the commit, if it has one.
        change_files: Number of ``cdc`` actions.
        is_merge_without_effect: Whether it is a MERGE that, by its metrics, inserted, updated and deleted nothing.
        repeated: A path that it names twice with the same deletion vector, by kind of action; see :func:`classify`.
    """

    version: int
    adds: int = 0
    removes: int = 0
    operation: str | None = None
    parameters: Mapping[str, object] | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    change_files: int = 0
    is_merge_without_effect: bool = False
    repeated: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, version: int, actions: Iterable[Action], *, table: str) -> CommitContent:
        """Summarise a commit in one pass, using eight bytes per file.

        Raises:
            StoppedError: It holds two different ``metaData`` or ``protocol`` actions, which the protocol forbids.
        """
        adds = removes = change_files = 0
        rest: list[Action] = []
        # these show whether a second pass over the files is needed; names of a streamed commit are not kept
        paths: Callable[[], set[str] | _Hashes] = set if isinstance(actions, list) else _Hashes
        added, removed, changed = paths(), paths(), paths()
        for action in actions:
            if (add := action.add) is not None:
                if add.dataChange is not False:
                    adds += 1
                    added.add(add.path)
            elif (remove := action.remove) is not None:
                if remove.dataChange is not False:
                    removes += 1
                    removed.add(remove.path)
            elif action.cdc is not None:
                change_files += 1
                changed.add(action.cdc.path)
            elif action.metaData is not None or action.protocol is not None or action.commitInfo is not None:
                rest.append(action)
        has_repeats = len(added) < adds or len(removed) < removes or len(changed) < change_files
        infos = [action.commitInfo for action in rest if action.commitInfo is not None]
        operation = infos[-1].operation if infos else None
        return cls(
            version,
            adds,
            removes,
            operation,
            infos[-1].operationParameters if infos else None,
            _only([action.metaData for action in rest if action.metaData is not None], "metaData", version, table),
            _only([action.protocol for action in rest if action.protocol is not None], "protocol", version, table),
            change_files,
            bool(infos) and _is_merge_without_effect(infos[-1]),
            _repeated(actions) if has_repeats else (),
        )

    @property
    def operation_text(self) -> str | None:
        """The operation with its parameters, ``WRITE (mode -> Overwrite)``."""
        if self.operation is None or not self.parameters:
            return self.operation
        return f"{self.operation} ({_describe(self.parameters)})"

    @property
    def describe_changes(self) -> str:
        """The commit's effect on data files, in words."""
        return f"it adds {_files(self.adds)} and removes {_files(self.removes)}"

    @property
    def replaces_rows(self) -> bool:
        """Whether its change feed may contain rows from before it together with rows from after it.

        Neither kind then has a meaning without the other: a delete and an insert of one key are an update.
        """
        return self.change_files > 0 or (self.adds > 0 and self.removes > 0)

    @property
    def overwrites(self) -> bool:
        """Whether it may have put other rows in the place of all that the table had."""
        operation = self.operation or ""
        is_overwrite = str((self.parameters or {}).get("mode")).lower() == "overwrite"
        return is_overwrite or "REPLACE TABLE" in operation or operation == "RESTORE"

    @property
    def has_changes(self) -> bool:
        """Whether it changes data, or records what was changed."""
        return self.adds > 0 or self.removes > 0 or self.change_files > 0


@dataclass(frozen=True, slots=True)
class Emit:
    """The commit's added files are delivered; there may be none."""


@dataclass(frozen=True, slots=True)
class Skip:
    """The commit is skipped as a whole.

    Attributes:
        reason: The option that requires it, and the commit's contents.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The stream cannot pass the commit.

    Attributes:
        error: The error to raise once everything before the commit is delivered.
    """

    error: StoppedError


_EMIT: Final = Emit()


#: Operations that never add rows; all others, especially WRITE and MERGE, may append.
_ONLY_REMOVE: Final = frozenset({"DELETE", "TRUNCATE", "UPDATE"})


def classify(content: CommitContent, options: SourceOptions, *, table: str) -> Emit | Skip | Stop:
    """Decide what happens with a commit.

    A commit that changes no data is emitted without files, whatever the options. ``skip_versions`` and
    ``skip_operations`` take precedence over everything else; ``skip_change_commits`` takes precedence over the options
    that ignore. With ``read_change_feed`` a commit may add, change and delete, but not switch the change data feed off.
    A commit that names a file twice stops the stream: the protocol forbids it ("Add File and Remove File"), and Delta's
    own readers disagree, since a snapshot has the rows once and a streaming query delivers them twice.

    Args:
        content: The whole commit.
        options: The stream's options.
        table: URI of the table, for the message.
    """
    verdict = _classify(content, options, table)
    if isinstance(verdict, Emit) and content.repeated:
        read = {"add"}
        if options.read_change_feed:
            read = {"cdc"} if content.change_files else {"add", "remove"}
        for kind, path in content.repeated:
            if kind in read:
                return Stop(_names_twice(content.version, kind, path, table))
    return verdict


def _classify(content: CommitContent, options: SourceOptions, table: str) -> Emit | Skip | Stop:
    if options.read_change_feed:
        return _classify_changes(content, options, table)
    if not content.adds and not content.removes:
        return _EMIT
    if (skip := _skipped_by_name(content, options)) is not None:
        return skip
    if not content.removes:
        return _EMIT
    if options.skip_change_commits:
        return Skip(f"skip_change_commits; {content.describe_changes}")
    if content.adds:
        return _EMIT if options.ignore_changes else Stop(_violation(content, table))
    if options.ignore_changes or options.ignore_deletes:
        by = "ignore_changes" if options.ignore_changes else "ignore_deletes"
        return Skip(f"{by}; {content.describe_changes}")
    return Stop(_violation(content, table))


def _classify_changes(content: CommitContent, options: SourceOptions, table: str) -> Emit | Skip | Stop:
    """Classify a commit for a stream of changes (``DeltaSourceCDCSupport.filterCDCActions``)."""
    is_switched_off = content.metadata is not None and not is_enabled(content.metadata)
    if is_switched_off and not options.skips_version(content.version):
        return Stop(not_recorded(content.version, table=table))
    if not content.has_changes:
        return _EMIT
    if (skip := _skipped_by_name(content, options)) is not None:
        return skip
    if content.is_merge_without_effect and not content.change_files:
        return Skip(f"a MERGE that changed no rows, according to its metrics; {content.describe_changes}")
    return _EMIT


def _skipped_by_name(content: CommitContent, options: SourceOptions) -> Skip | None:
    if options.skip_versions and options.skips_version(content.version):
        return Skip(f"skip_versions lists version {content.version}; {content.describe_changes}")
    if options.skip_operations and content.operation and content.operation.upper() in options.skip_operations:
        return Skip(f"skip_operations lists {content.operation}; {content.describe_changes}")
    return None


def _violation(content: CommitContent, table: str) -> ViolationError:
    version, operation = content.version, content.operation_text
    is_mixed = content.adds > 0
    ways = [
        (
            "read_change_feed=True reads the rows that changed, into a sink that merges or that keeps every change, if "
            "the table recorded them at this version (delta.enableChangeDataFeed)"
        ),
        "skip_change_commits=True skips this and every other commit that removes data, with everything that it adds",
        "ignore_changes=True delivers the files that such commits add, so rows that they did not change arrive again"
        if is_mixed
        else "ignore_deletes=True skips commits that only delete; the deleted rows stay in the sink",
        f"skip_versions='{version}' skips this commit only",
    ]
    if content.operation:
        ways.append(
            f"skip_operations={content.operation!r} skips every commit of this operation"
            + (
                ""
                if content.operation in _ONLY_REMOVE
                else ", including those that only append: their rows would be missing"
            )
        )
    ways.append(f"`fds skip STREAM --version {version} --why …` skips this commit only and records it")
    if content.overwrites:
        ways.append(LOAD_ANEW)
    what = "changes or replaces rows" if is_mixed else "deletes rows"
    text = "\n".join(f"  - {way}" for way in ways)
    return ViolationError(
        f"{table}: version {version} ({operation or 'an operation that the commit does not name'}) {what}: "
        f"{content.describe_changes}. This stream reads appends only and stops before version {version}; "
        f"everything before it is delivered. To continue, choose one:\n{text}",
        table=table,
        version=version,
        operation=operation,
        reason=Reason.SOURCE_ROWS_CHANGED if is_mixed else Reason.SOURCE_ROWS_DELETED,
    )


class _Hashes:
    """The set of paths of a huge commit, reduced to their hashes."""

    def __init__(self) -> None:
        self._hashes = array("q")
        append = self._hashes.append
        self.add: Callable[[str], None] = lambda path: append(hash(path))

    def __len__(self) -> int:
        import numpy as np

        values = np.array(self._hashes)
        values.sort()
        return len(values) - int(np.count_nonzero(values[1:] == values[:-1]))


def _repeated(actions: Iterable[Action]) -> tuple[tuple[str, str], ...]:
    """Return kinds of actions, each with a path that occurs twice with the same deletion vector."""
    seen: set[tuple[str, str, str | None]] = set()
    found: dict[str, str] = {}
    for action in actions:
        if action.add is not None and action.add.changes_data:
            key = ("add", *action.add.file_key)
        elif action.remove is not None and action.remove.changes_data:
            key = ("remove", *action.remove.file_key)
        elif action.cdc is not None:
            key = ("cdc", action.cdc.path, None)
        else:
            continue
        if key in seen:
            found.setdefault(key[0], key[1])
        seen.add(key)
    return tuple(found.items())


def _names_twice(version: int, kind: str, path: str, table: str) -> StoppedError:
    error = StoppedError(
        f"{table}: version {version} has two {kind} actions for {path} with the same deletion vector. The Delta "
        "protocol allows only one, so it is unknown whether its rows count once or twice: the stream stops before "
        f"version {version}; everything before it is delivered. skip_versions='{version}', or `fds skip "
        f"STREAM --version {version} --why …`, skips the commit with all its rows",
        table=table,
        version=version,
        reason=Reason.SOURCE_FILE_REPEATED,
    )
    error.way_on = "skip"
    return error


def _only(found: Sequence[_T], action: str, version: int, table: str) -> _T | None:
    """Return the only action of its kind, or ``None`` if the commit has no such action."""
    if not found:
        return None
    different: list[_T] = []
    for value in found:
        if value not in different:
            different.append(value)
    if len(different) > 1:
        raise StoppedError(
            f"{table}: version {version} has {len(different)} different {action} actions, but the Delta protocol "
            f"allows only one. The stream stops before version {version}; everything before it is delivered. The "
            "commit file is damaged or was not written by a Delta writer: find out who wrote it.",
            table=table,
            version=version,
        )
    return different[0]


def _describe(parameters: Mapping[str, object]) -> str:
    """Return parameters as Delta's own messages show them: ``mode -> Overwrite, partitionBy -> []``."""
    text = ", ".join(
        f"{key} -> {value if isinstance(value, str) else json.dumps(value)}" for key, value in parameters.items()
    )
    return text if len(text) <= _MAX_PARAMETERS else text[:_MAX_PARAMETERS] + "…"


def _is_merge_without_effect(info: CommitInfo) -> bool:
    """Return whether metrics show that a MERGE only rewrote files (``CDCReader.shouldSkipFileActionsInCommit``)."""
    metrics = info.operationMetrics or {}
    return info.operation == "MERGE" and all(str(metrics.get(name)) == "0" for name in _MERGE_METRICS)


def _files(number: int) -> str:
    return f"{number} data file{'' if number == 1 else 's'}"
