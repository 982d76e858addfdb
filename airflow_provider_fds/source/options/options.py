"""The options of a stream's source as one frozen, validated value: a superset of Delta's streaming read options."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.options import option_values as values_of
from airflow_provider_fds.source.options.foreign_options import REFUSED, foreign_option
from airflow_provider_fds.source.options.limits import (
    DEFAULT_MAX_BYTES,
    DEFAULT_MAX_FILES,
    DEFAULT_MAX_WAIT,
    default_limits,
)
from airflow_provider_fds.source.options.option_ranges import (
    alignment_problems,
    interval_problems,
    minimum_problems,
    range_problems,
)
from airflow_provider_fds.source.options.schema_policy import (
    DELTA_OPTIONS,
    DELTA_SETTINGS,
    OPTION,
    Rules,
    delta_rules,
    merged_rules,
    schema_rules,
    shown_rules,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta


@dataclass(frozen=True)
class SourceOptions:
    """Where a stream starts, how large its batches are, and what it does with commits that are not appends.

    Build it with :meth:`parse`. Names are Delta's in snake case; Delta's own spelling is accepted too. Times are commit
    times, in UTC unless they carry a zone.

    Args:
        starting_version: First version to read (inclusive), ``"earliest"`` (the oldest commit in the log) or
            ``"latest"`` (only versions after the newest). Without a start the stream begins with a snapshot.
        starting_timestamp: Read from the first commit at or after this time, and wait until there is one; not together
            with ``starting_version``.
        on_changed_start: What a run does if the stream began with another start, so that the option has no effect:
            ``"warn"`` or ``"fail"``.
        max_files_per_batch: Maximum number of files in a batch; default 1000, or no limit if ``max_bytes_per_batch`` or
            ``max_rows_per_batch`` is given.
        max_bytes_per_batch: Bytes at which a batch ends; the last file may exceed it. Default 125 GiB, or no limit if
            ``max_files_per_batch`` or ``max_rows_per_batch`` is given.
        max_rows_per_batch: Rows at which a batch ends, according to the log's statistics; the last file may exceed it.
            A file whose statistics do not say how many rows it has is counted by its size, with a warning. Not together
            with ``read_change_feed``, because change files never have statistics.
        max_versions_per_batch: Maximum number of versions with data in a batch.
        whole_commits: ``True``: never cut a commit in two; a commit that is too large is its own batch. The initial
            snapshot is still cut by files. ``None``: a commit of the change feed that both adds and removes rows is
            kept whole if the sink applies rows by key. ``False``: the limits may cut any commit.
        min_batch_bytes: Bytes of new data files below which a run plans nothing and the sensor keeps waiting. A stream
            with an end takes everything.
        max_batch_wait: How long after its oldest commit a smaller amount is loaded anyway; at most a day.
        ignore_deletes: Skip commits that only delete; the rows that they delete stay in the sink.
        ignore_changes: For a commit that changes rows, read the files it adds in full, so unchanged rows arrive again.
            Includes ``ignore_deletes``. Also called ``ignore_file_deletion``.
        skip_change_commits: Skip every commit that removes data, with everything that it adds. Overrides the other two.
        skip_versions: Versions to skip, whatever they contain: inclusive ranges.
        skip_operations: Operations (``commitInfo.operation``, in upper case) whose commits are skipped.
        exclude_regex: Exclude files whose path in the log (encoded) contains a match; only syntax that Java and Python
            share. Excluded files count towards the limits.
        read_change_feed: Read the changes instead of the added files: inserts, deletes, and updates with the row before
            and after, each with its ``_change_type``. The table must record them (``delta.enableChangeDataFeed``). Not
            together with the three options that ignore or skip changes.
        version_as_of: Read the table as it was at this version, in batches, and nothing after it.
        timestamp_as_of: Likewise, at the last version committed at or before this time.
        ending_version: Last version to read (inclusive); after it the stream is finished.
        ending_timestamp: Read up to the last commit at or before this time; finished once there is a later commit.
        where: Read only rows that satisfy this predicate on columns of the table, such as ``"day >= DATE '2026-01-01'
            AND price > 100"``. Files whose partition values or statistics prove that they have no such row are not
            listed in a batch and count for no limit. Conditions on partition columns alone never divide a file.
        on_violation: What a run does if the next version is one that the stream cannot pass: ``"fail"``;
            ``"quarantine"``: it records the version in the ledger and is skipped, as are all later runs, until a person
            accepts or skips the version, or resumes the stream; or ``"ask"``: a ``DeltaIngestOperator`` also asks that
            person in Airflow's UI and waits for the answer.
        on_lost_position: What to do if log cleanup has removed commits that the stream has not read: ``"fail"``, or
            ``"earliest"``: continue at the oldest commit left; the ledger records which versions are lost. A hole in
            the log, a replaced table and a restored table are always errors.
        event_time_column: Column of type timestamp, timestamp_ntz or date, with dots for a nested one. Results then
            have the range of its values, and the stream a watermark, both from the log's statistics.
        align_with: Other streams with the same staging folder, or their names. A plan ends before a version whose event
            times are more than ``max_drift`` after the watermark of the slowest of them.
        max_drift: See ``align_with``.
        accepted_schema_version: Newest version whose schema change the stream may pass even though it is not purely
            additive (a column renamed, dropped or of another type, other partition columns). Rows before it are read
            with the old schema, rows from it on with the new one.
        on_schema_change: What happens at a version that changes the schema, by kind of change (``add``, ``widen``,
            ``rename``, ``drop``, ``type``): ``"follow"`` passes it, ``"ask"`` stops before it until a person
            accepts it, ``"fail"`` stops too, and ``accepted_schema_version`` does not help. A version number follows
            the change at that version and asks at any other. Kinds that are not named are as in ``[fds]``; the default
            is to follow ``add`` and ``widen``, and to ask at the others. Delta's ``allowSourceColumnRename``,
            ``…Drop``, ``…RenameAndDrop`` and ``…TypeChange`` set the same rules.
        allowed_roots: Places besides the table's own folder where its files may be, as for a shallow clone: URIs of
            folders or buckets, or ``"*"`` for anywhere. Default: anywhere in the table's own bucket, container or file
            system. Spark uses its own permissions to read the files that the log names.
        columns: Top-level columns to read; default: all. Other columns are not in a batch, but a change to them still
            counts as a change of the schema.
        stage_statistics: ``False``: do not copy the minima, maxima and null counts of each file's columns from the log
            to staging. Spark then cannot use them to skip files. Row counts are still copied. Always so with
            ``columns``.

    Examples:
        >>> SourceOptions.parse({"maxFilesPerTrigger": "50", "starting_version": 3}).max_files_per_batch
        50
    """

    starting_version: int | str | None = None
    starting_timestamp: str | None = None
    on_changed_start: str = "warn"
    max_files_per_batch: int | None = DEFAULT_MAX_FILES
    max_bytes_per_batch: int | None = DEFAULT_MAX_BYTES
    max_rows_per_batch: int | None = None
    max_versions_per_batch: int | None = None
    whole_commits: bool | None = None
    min_batch_bytes: int | None = None
    max_batch_wait: timedelta = DEFAULT_MAX_WAIT
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    skip_versions: values_of.VersionRanges = ()
    skip_operations: tuple[str, ...] = ()
    exclude_regex: str | None = None
    read_change_feed: bool = False
    version_as_of: int | None = None
    timestamp_as_of: str | None = None
    ending_version: int | None = None
    ending_timestamp: str | None = None
    event_time_column: str | None = None
    align_with: tuple[str, ...] = ()
    max_drift: timedelta | None = None
    where: str | None = None
    on_violation: str = "fail"
    on_lost_position: str = "fail"
    accepted_schema_version: int | None = None
    on_schema_change: Rules = ()
    allowed_roots: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    stage_statistics: bool = True

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, by_interval: bool = False) -> SourceOptions:
        """Build the options from a user's values.

        Args:
            values: Options by name, in snake case or in Delta's spelling (case does not matter, as in Delta). Numbers,
                sizes and booleans may be strings. ``None`` means not given.
            by_interval: Whether the stream reads data intervals, and has no start and no end of its own.

        Raises:
            ConfigurationError: Reports all problems at once: unknown names with the nearest known one, invalid values,
                options that exclude each other, options of Delta that have no meaning here, and options that are not
                available yet.
        """
        problems: list[str] = []
        found: dict[str, tuple[str, Any]] = {}
        rules, others = _delta_rules(values, problems)
        for key, value in others.items():
            name = _SPELLINGS.get(key.lower()) if isinstance(key, str) else None
            if name is None:
                problems.append(_unknown(key))
                continue
            if value is None:
                continue
            try:
                parsed = _OPTIONS[name].read(value)
            except ValueError as error:
                problems.append(f"option {key!r} {error}.")
                continue
            if name in found and found[name][1] != parsed:
                problems.append(
                    f"options {found[name][0]!r} and {key!r} are the same option, but their values differ: "
                    f"{found[name][1]!r} and {parsed!r}. Set only one of them."
                )
            found[name] = (key, parsed)
        if rules:
            rules = dict([found[OPTION]] if OPTION in found else []) | rules
            merged, of_rules = merged_rules(rules)
            found[OPTION] = (", ".join(rules), merged)
            problems += of_rules
        problems += _exclusive(found)
        if by_interval:
            problems += interval_problems(found)
        if problems:
            raise ConfigurationError(*problems, subject="source options", reason=Reason.INVALID_OPTION)
        chosen = {name: value for name, (_, value) in found.items()}
        return cls(**{**default_limits(chosen), **chosen})

    def to_dict(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as JSON-compatible values that :meth:`parse` accepts."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        defaults = {item.name: item.default for item in fields(self)}
        limits = default_limits({})
        if any(values[name] != default for name, default in limits.items()):
            limits = default_limits(values)
        defaults |= limits
        result: dict[str, Any] = {}
        for name, value in values.items():
            if value == defaults[name]:
                continue
            shown = _SHOWN[name](value) if name in _SHOWN and value is not None else value
            result[name] = list(shown) if isinstance(shown, tuple) else shown
        return result

    def digest(self) -> str:
        """Return 32 hexadecimal digits that are equal for equal options, in every process and version of FDS."""
        return _digest(self.to_dict())

    def meaning_digest(self) -> str:
        """Return the digest of only those options that decide which file an index within a commit refers to.

        An offset in the middle of a commit is valid only under options with the same digest.
        """
        return _digest({name: value for name, value in self.to_dict().items() if name in _CHANGE_INDEXES})

    @property
    def is_bounded(self) -> bool:
        """Whether the stream reads one snapshot and nothing after it."""
        return self.version_as_of is not None or self.timestamp_as_of is not None

    @property
    def keeps_statistics(self) -> bool:
        """Whether the minima and maxima of columns get into staging, which lets Spark skip files."""
        return self.stage_statistics and not self.columns

    def skips_version(self, version: int) -> bool:
        """Whether ``skip_versions`` lists ``version``."""
        return any(first <= version <= last for first, last in self.skip_versions)


#: Options that omit a whole commit, or read other files of it.
_CHANGE_INDEXES: Final = frozenset({"skip_change_commits", "skip_versions", "skip_operations", "read_change_feed"})


#: How the values of options are shown that JSON has no form for.
_SHOWN: Final[dict[str, Callable[[Any], Any]]] = {
    "skip_versions": values_of.shown_ranges,
    "on_schema_change": shown_rules,
    "max_batch_wait": values_of.shown_wait,
    "max_drift": values_of.shown_wait,
}


class _Option(NamedTuple):
    """How an option is parsed, and its other names."""

    read: Callable[[object], Any]
    also: tuple[str, ...] = ()


_OPTIONS: Final[dict[str, _Option]] = {
    "starting_version": _Option(values_of.starting_version),
    "starting_timestamp": _Option(values_of.timestamp),
    "on_changed_start": _Option(values_of.one_of("warn", "fail")),
    "max_files_per_batch": _Option(values_of.count, ("max_files_per_trigger",)),
    "max_bytes_per_batch": _Option(values_of.size, ("max_bytes_per_trigger",)),
    "max_rows_per_batch": _Option(values_of.count),
    "max_versions_per_batch": _Option(values_of.count),
    "whole_commits": _Option(values_of.boolean),
    "min_batch_bytes": _Option(values_of.size),
    "max_batch_wait": _Option(values_of.wait),
    "ignore_deletes": _Option(values_of.boolean),
    "ignore_changes": _Option(values_of.boolean, ("ignore_file_deletion",)),
    "skip_change_commits": _Option(values_of.boolean),
    "skip_versions": _Option(values_of.version_ranges),
    "skip_operations": _Option(values_of.operations),
    "exclude_regex": _Option(values_of.regex),
    "read_change_feed": _Option(values_of.boolean, ("read_change_data",)),
    "version_as_of": _Option(values_of.version),
    "timestamp_as_of": _Option(values_of.timestamp),
    "ending_version": _Option(values_of.version),
    "ending_timestamp": _Option(values_of.timestamp),
    "event_time_column": _Option(values_of.column),
    "align_with": _Option(values_of.streams),
    "max_drift": _Option(values_of.drift),
    "where": _Option(values_of.predicate),
    "on_violation": _Option(values_of.one_of("fail", "quarantine", "ask")),
    "on_lost_position": _Option(values_of.one_of("fail", "earliest")),
    "accepted_schema_version": _Option(values_of.version),
    "on_schema_change": _Option(schema_rules),
    "allowed_roots": _Option(values_of.roots),
    "columns": _Option(values_of.columns),
    "stage_statistics": _Option(values_of.boolean),
}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _spellings() -> dict[str, str]:
    result = {}
    for name, option in _OPTIONS.items():
        for spelling in (name, *option.also):
            result[spelling] = name
            result[_camel(spelling).lower()] = name
    return result


#: Lower-case spelling -> name of the field.
_SPELLINGS: Final = _spellings()

#: Lower-case spelling of an option of Delta about changes of the schema -> its name in snake case.
_DELTA_RULES: Final = {key: name for name in DELTA_OPTIONS for key in (name, _camel(name).lower())}

#: Lower-case spelling -> reason.
_REFUSALS: Final = {key: why for name, why in REFUSED.items() for key in (name, _camel(name).lower())}


def _delta_rules(values: Mapping[str, Any], problems: list[str]) -> tuple[dict[str, Rules], dict[str, Any]]:
    """Return the rules of Delta's own options about changes of the schema, by spelling, and the other options."""
    rules: dict[str, Rules] = {}
    others: dict[str, Any] = {}
    for key, value in values.items():
        option = _DELTA_RULES.get(key.lower()) if isinstance(key, str) else None
        if option is None:
            others[key] = value
        elif value is not None:
            try:
                rules[key] = delta_rules(option, value)
            except ValueError as error:
                problems.append(f"option {key!r} {error}.")
    return rules, others


def _unknown(key: object) -> str:
    if not isinstance(key, str):
        return f"option names must be strings; got {key!r}."
    if key.lower() in _REFUSALS:
        return f"option {key!r} has no meaning in FDS: {_REFUSALS[key.lower()]}."
    if key.lower().startswith(DELTA_SETTINGS + "allowsourcecolumn"):
        option = key[len(DELTA_SETTINGS) :].partition(".")[0]
        return (
            f"{key!r} is a setting of a Spark session, which is not read when a batch is planned. Give the stream the "
            f"option {option!r}."
        )
    if (foreign := foreign_option(key)) is not None:
        return f"option {key!r} belongs to {foreign.system}. Here, {foreign.answer}."
    from difflib import get_close_matches

    in_snake_case = "_" in key or key.islower()
    shown = {_camel(name).lower(): name if in_snake_case else _camel(name) for name in _all_names()}
    near = get_close_matches(key.lower().replace("_", ""), list(shown), n=1, cutoff=0.6)
    hint = f"Did you mean {shown[near[0]]!r}?" if near else f"The known options are {', '.join(_OPTIONS)}."
    return f"unknown option {key!r}. {hint}"


def _all_names() -> list[str]:
    return [name for field, option in _OPTIONS.items() for name in (field, *option.also)]


def _exclusive(found: Mapping[str, tuple[str, Any]]) -> list[str]:
    problems = []
    if "starting_version" in found and "starting_timestamp" in found:
        first, second = found["starting_version"][0], found["starting_timestamp"][0]
        problems.append(
            f"options {first!r} and {second!r} cannot be combined: a stream starts at a version or at a time."
        )
    problems += range_problems(found) + minimum_problems(found)
    problems += alignment_problems(found)
    if "read_change_feed" in found and found["read_change_feed"][1]:
        feed = found["read_change_feed"][0]
        problems += [
            f"option {found[name][0]!r} has no effect with {feed!r}, where deletes and updates arrive as rows. "
            "Omit one of them."
            for name in ("ignore_deletes", "ignore_changes", "skip_change_commits")
            if name in found and found[name][1]
        ]
        if "max_rows_per_batch" in found:
            problems.append(
                f"options {found['max_rows_per_batch'][0]!r} and {feed!r} cannot be combined: the log does not "
                "say how many rows a change file has. Use max_bytes_per_batch or max_files_per_batch."
            )
    return problems


def _digest(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
