"""``fds show``, ``history``, ``latest``: commands that write nothing."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.errors import EXIT_OK

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.ledger.entries import Entry


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``show``, ``history`` and ``latest``."""
    for name, text, function in (
        ("show", "the full state of a stream, including planned batches, as JSON", show),
        ("history", "the history of a stream, entry by entry", history),
    ):
        parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        parser.add_argument("stream", metavar="STREAM", help="name of the stream")
        common.add_storage(parser, staging_required=True)
        if name != "show":
            parser.add_argument("--output", choices=("text", "json"), default="text", help="default: %(default)s")
        parser.set_defaults(command=function)
    parser = commands.add_parser(
        "latest", help="the newest version of a table", description="Print the newest version."
    )
    parser.add_argument("table", metavar="TABLE", help="URI or path of a Delta table")
    parser.add_argument(
        "--storage-option", metavar="KEY=VALUE", action="append", default=[], help=common.STORAGE_OPTION_HELP
    )
    parser.set_defaults(command=latest)


def show(arguments: argparse.Namespace) -> int:
    """Perform ``fds show``."""
    import msgspec

    print(json.dumps(msgspec.to_builtins(common.ledger_of(arguments)[0].state), indent=2))
    return EXIT_OK


def history(arguments: argparse.Namespace) -> int:
    """Perform ``fds history``."""
    from airflow_provider_fds.errors import UnreadableEntryError

    ledger, _ = common.ledger_of(arguments)
    expected = 0
    for entry in ledger.readable():
        if entry.n > expected:
            print(
                f"WARNING entries {expected} to {entry.n - 1} are missing: all or part of staging was removed. "
                "The sink's own history shows what they committed",
                file=sys.stderr,
            )
        expected = entry.n + 1
        if isinstance(entry, UnreadableEntryError):
            print(f"WARNING {entry}", file=sys.stderr)
            continue
        print(entry.to_json().decode().strip() if arguments.output == "json" else _line(entry))
    return EXIT_OK


def latest(arguments: argparse.Namespace) -> int:
    """Perform ``fds latest``."""
    from airflow_provider_fds.delta.log import DeltaLog
    from airflow_provider_fds.delta.open import open_storage

    options = common.pairs(arguments.storage_option, "--storage-option")
    print(DeltaLog(open_storage(arguments.table, options)).latest())
    return EXIT_OK


def _line(entry: Entry) -> str:
    action: dict[str, Any] = json.loads(entry.to_json())["action"]
    kind = action.pop("kind")
    shown = (
        "interval",
        "generation",
        "instant",
        "version",
        "epoch",
        "batch_id",
        "rows",
        "sink_version",
        "start",
        "end",
        "target",
        "options",
        "why",
        "reason",
    )
    facts = [f"{key}={str(action[key]).partition(chr(10))[0]}" for key in shown if action.get(key) is not None]
    for key, value in (action.get("measures") or {}).items():
        shown_value = ",".join(f"{phase}:{took:.1f}" for phase, took in value.items()) if key == "seconds" else value
        if shown_value not in (None, ""):
            facts.append(f"{key}={shown_value}")
    if action.get("batches"):
        ids = [batch["batch_id"] for batch in action["batches"]]
        facts.append(f"batches={ids[0]}..{ids[-1]}")
    if (removal := action.get("removal") or (action.get("fence") or {}).get("removal")) is not None:
        which = "all" if removal["what"] == "all" else f"_source_version>={removal['from_version']}"
        facts.append(f"removes={which}" + ("(forced)" if removal["is_forced"] else ""))
        if (rows := (action.get("fence") or {}).get("removed_rows")) is not None:
            facts.append(f"removed_rows={rows}")
    if (origin := action.get("origin")) is not None:
        facts.append(f"stream={origin['stream']} uuid={origin['uuid']} offset={origin['offset']}")
    if given_up := (action.get("recovered") or {}).get("given_up"):
        facts.append(f"instead of unreadable entries={','.join(str(one['n']) for one in given_up)}")
    if warnings := (action.get("fence") or {}).get("warnings"):
        facts.append(f"warnings={warnings}")
    line = f"{entry.n:6} {entry.time} {kind:12} {' '.join(facts)}  [{entry.actor.describe()}]"
    ranges = [action, *(action.get("batches") or ())]
    passes = [
        f"{'':32} skips version {one['version']}: {one['reason']}"
        for part in ranges
        for one in part.get("skipped") or ()
    ]
    passes += [
        f"{'':32} schema of version {one['version']}: {', '.join(one['changes'])} (allowed by: {one['allowed_by']})"
        for part in ranges
        for one in part.get("schema_changes") or ()
    ]
    return "\n".join([line, *passes])
