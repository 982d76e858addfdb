"""``fds history``: the entries of a ledger as readable text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.batch.version_ranges import describe_covered, describe_range
from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.terminal import fitted
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError
from airflow_provider_fds.ledger.measures import describe_failed
from airflow_provider_fds.sizes import format_bytes, format_count

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.cli.command_list import CommandParsers
    from airflow_provider_fds.ledger.entries.entry import Entry
    from airflow_provider_fds.ledger.staging.log import Ledger

#: Entries that are shown unless the user asks for more.
PAGE: Final = 100

#: Entries before a page that are searched for the plan of a batch that the page commits.
_LOOK_BACK: Final = 20

#: Width of number, time and kind of an entry.
_INDENT: Final = 44

#: The fields that are shown with their name, in this order; the others have words of their own.
_NAMED: Final = {
    "deployment": "deployment",
    "previous": "previously",
    "table": "table",
    "target": "newest version",
    "to": "to",
    "options": "options",
    "rejected": "rows left out:",
}


def add_commands(commands: CommandParsers) -> None:
    """Add ``history``."""
    parser = commands.add_parser("history")
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    common.add_storage(parser, staging_required=True)
    page = parser.add_mutually_exclusive_group()
    page.add_argument(
        "--limit",
        metavar="N",
        type=common.positive_int,
        default=PAGE,
        help="how many entries to show, the newest ones (default: %(default)s)",
    )
    page.add_argument("--all", action="store_true", help="show all entries, from the first one")
    parser.add_argument(
        "--before", metavar="ENTRY", type=common.positive_int, help="show only entries before the one with this number"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.set_defaults(command=history)


def history(arguments: argparse.Namespace) -> int:
    """Perform ``fds history``."""
    from airflow_provider_fds.errors import UnreadableEntryError

    ledger, _ = common.ledger_of(arguments)
    end = ledger.n + 1 if arguments.before is None else min(arguments.before, ledger.n + 1)
    expected = first = 0 if arguments.all else max(0, end - arguments.limit)
    words = EntryWords()
    if first:
        words.see_before(first, ledger)
    for entry in ledger.read(range(first, end)):
        if entry.n > expected:
            which = f"entry {expected} is" if entry.n == expected + 1 else f"entries {expected} to {entry.n - 1} are"
            print(
                f"WARNING {which} missing: all or part of staging was removed. "
                "The sink's own history shows what they committed",
                file=sys.stderr,
            )
        expected = entry.n + 1
        if isinstance(entry, UnreadableEntryError):
            print(f"WARNING {entry}", file=sys.stderr)
        elif arguments.output == "json":
            print(entry.to_json().decode().strip())
        else:
            print(words.describe(entry))
    if first:
        older = "entry 0" if first == 1 else f"entries 0 to {first - 1}"
        print(f"There are older entries ({older}): add --before {first} or --all", file=sys.stderr)
    return EXIT_OK


class EntryWords:
    """Describes the entries of one ledger, in their order.

    It remembers planned batches, because the entry that commits one does not repeat its versions.
    """

    def __init__(self) -> None:
        self._versions: dict[tuple[int, str | None, int], str] = {}
        self._snapshot: dict[str, Any] | None = None

    def see_before(self, first: int, ledger: Ledger) -> None:
        """Remember the plan that may be committed from entry ``first`` on, and the snapshot of the open epoch."""
        import msgspec

        from airflow_provider_fds.ledger.entries.entry import Entry

        if ledger.state.snapshot is not None:
            self._snapshot = msgspec.to_builtins(ledger.state.snapshot)
        for n in range(first - 1, max(-1, first - 1 - _LOOK_BACK), -1):
            for entry in ledger.read((n,)):
                if isinstance(entry, Entry) and entry.action.kind == "planned":
                    self._subject(msgspec.to_builtins(entry.action))
                    return

    def describe(self, entry: Entry) -> str:
        """Return the lines of an entry: number, time, kind, what it says, who wrote it; then what it passes over."""
        import msgspec

        action: dict[str, Any] = msgspec.to_builtins(entry.action)
        time = entry.time[:19] + "Z"
        facts = "; ".join(self._facts(action))
        kind = getattr(entry.action, "decision", action["kind"])
        line = f"{entry.n:6} {time} {kind:15} {facts}{'  ' if facts else ''}[{entry.actor.describe()}]"
        ranges = [action, *(action.get("batches") or ())]
        passes = [
            f"skips version {one['version']}: {one['reason']}" for part in ranges for one in part.get("skipped") or ()
        ]
        passes += [
            f"schema of version {one['version']}: {', '.join(one['changes'])} (allowed by: {one['allowed_by']})"
            for part in ranges
            for one in part.get("schema_changes") or ()
        ]
        return "\n".join([fitted(line, _INDENT), *(fitted(f"{'':{_INDENT}}{one}", _INDENT + 2) for one in passes)])

    def _facts(self, action: dict[str, Any]) -> list[str]:
        found = [self._subject(action), *_positions(action), *_rows(action)]
        found += [f"{label} {_text(action[key])}".strip() for key, label in _NAMED.items() if action.get(key)]
        if sink := action.get("sink"):
            found.append(f"into {sink['kind']} {sink['target']}".rstrip())
        fence = action.get("fence") or {}
        if (removal := action.get("removal") or fence.get("removal")) is not None:
            found.append(_removal(removal, fence.get("removed_rows")))
        if (origin := action.get("origin")) is not None:
            found.append(
                f"continues stream {origin['stream']} (uuid {origin['uuid']}) from {_position(origin['offset'])}"
            )
        if given_up := (action.get("recovered") or {}).get("given_up"):
            which = ", ".join(str(one["n"]) for one in given_up)
            found.append(f"instead of unreadable {'entry' if len(given_up) == 1 else 'entries'} {which}")
        found += (action.get("measures") or {}).get("warnings") or ()
        found += fence.get("warnings") or ()
        if action["kind"] != "acknowledged" and action.get("reason"):
            found.append(_first_line(action["reason"]))
        if action.get("why"):
            found.append(f"why: {_first_line(action['why'])}")
        return [fact for fact in found if fact]

    def _subject(self, action: dict[str, Any]) -> str:
        """Return what the entry is about: an epoch, an interval, batches, a version."""
        if action["kind"] == "opened":
            self._snapshot = action.get("snapshot")
        interval = action.get("interval")
        scope = "" if interval is None else f"interval {interval}"
        if (generation := action.get("generation")) is not None:
            scope += f", generation {generation}"
        elif action.get("epoch") is not None:
            name = "epoch" if interval is None else ", generation"
            scope += f"{name} {action['epoch']}"
        if (number := action.get("batch_id")) is not None:
            covered = self._versions.get((action["epoch"], interval, number))
            return f"{scope}, batch {number}" + ("" if covered is None else f": {covered}")
        batches = action.get("batches")
        if not batches or action["kind"] != "planned":
            if batches:
                scope += f", {format_count(len(batches), 'batch', 'batches')} in the sink"
            return scope
        for batch in batches:
            self._versions[action["epoch"], interval, batch["batch_id"]] = self._covered(batch, batch)
        return f"{scope}, {self._planned(batches)}"

    def _planned(self, batches: list[dict[str, Any]]) -> str:
        first, last = batches[0], batches[-1]
        is_one = len(batches) == 1
        which = f"batch {first['batch_id']}" if is_one else f"batches {first['batch_id']} to {last['batch_id']}"
        rows = [batch["num_rows"] for batch in batches]
        count = "rows unknown" if None in rows else format_count(sum(rows), "row")
        files = format_count(sum(batch["num_files"] for batch in batches), "file")
        size = format_bytes(sum(batch["num_bytes"] for batch in batches))
        return f"{which}: {self._covered(first, last)}, {count} in {files} of {size}"

    def _covered(self, first: dict[str, Any], last: dict[str, Any]) -> str:
        num_files = None if self._snapshot is None else self._snapshot["num_files"]
        return describe_covered(first["start"], last["end"], first["first_version"], last["last_version"], num_files)


def _positions(action: dict[str, Any]) -> list[str]:
    """Return the versions and positions of an entry that plans and commits no batch."""
    found = []
    if (instant := action.get("instant")) is not None:
        found.append(f"at {instant}")
    if (version := action.get("version")) is not None:
        found.append(f"version {version}")
    if (first := action.get("first_version")) is not None:
        found.append(describe_range(first, action["last_version"]))
    if action["kind"] == "opened":
        found.append(f"from {_position(action['start'])}")
    if (position := action.get("position")) is not None:
        found.append(f"from {_position(position)}")
    if (table_versions := action.get("table_versions")) is not None:
        found += [f"{name} at version {number}" for name, number in table_versions.items()]
    return found


def _rows(action: dict[str, Any]) -> list[str]:
    """Return what was planned, read and written."""
    found = []
    if action.get("rows_planned") is not None:
        found.append(f"{format_count(action['rows_planned'], 'row')} planned")
    if action.get("rows_written") is not None:
        found.append(f"{format_count(action['rows_written'], 'row')} written")
    measures = action.get("measures") or {}
    if measures.get("rows_read") is not None:
        found.append(f"{format_count(measures['rows_read'], 'row')} in")
    if action.get("rows") is not None:
        out = f"{format_count(action['rows'], 'row')} out"
        if measures.get("files_written") is not None:
            out += f" in {format_count(measures['files_written'], 'file')}"
        if measures.get("bytes_written") is not None:
            out += f" of {format_bytes(measures['bytes_written'])}"
        found.append(out + describe_failed(measures.get("failed_rows") or {}, measures.get("rows_rejected") or 0))
    if action.get("sink_version") is not None:
        found.append(f"sink version {action['sink_version']}")
    if seconds := measures.get("seconds"):
        phases = ", ".join(f"{phase} {took:.1f}" for phase, took in seconds.items())
        found.append(f"{sum(seconds.values()):.1f} s ({phases})")
    return found


def _removal(removal: dict[str, Any], removed_rows: int | None) -> str:
    which = "all rows" if removal["what"] == "all" else f"rows of version {removal['from_version']} and later"
    forced = " by force" if removal["is_forced"] else ""
    count = "" if removed_rows is None else f": {format_count(removed_rows, 'row')}"
    return f"removes {which} from the sink{forced}{count}"


def _position(offset: str) -> str:
    from airflow_provider_fds.source.offset import describe_position

    try:
        return describe_position(offset)
    except ConfigurationError:
        return f"the unreadable offset {offset!r}"


def _text(value: Any) -> str:
    """Return a value of an entry in words: an owner, options, or one value."""
    if not isinstance(value, dict):
        return str(value)
    if "task_id" in value:
        from airflow_provider_fds.ledger.owner import Owner

        return Owner(**value).describe()
    return ", ".join(f"{key}={shown}" for key, shown in value.items())


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
