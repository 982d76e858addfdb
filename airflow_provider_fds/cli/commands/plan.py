"""``fds plan``: prints the next batches of a table; with staging, also writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.batch.location import hadoop_path
from airflow_provider_fds.batch.version_ranges import describe_covered
from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.catalogs import add_catalog
from airflow_provider_fds.cli.estimate import (
    BATCHES_PER_APPLICATION,
    Outcome,
    check_arguments,
    known_stream,
    lines,
    totals,
)
from airflow_provider_fds.cli.fleet import fleet
from airflow_provider_fds.cli.messages import end_of, shown
from airflow_provider_fds.cli.terminal import Waiting
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from airflow_provider_fds.cli.command_list import CommandParsers
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.source.planned import SourceBatch
    from airflow_provider_fds.source.planning.plan import BatchPlanner
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream
    from airflow_provider_fds.stream.polling.min_batch import MinBatch
    from airflow_provider_fds.stream.run.session import StreamSession


#: Without a limit, ``fds plan`` plans everything.
_NO_LIMIT = 2**31


def add_commands(commands: CommandParsers) -> None:
    """Add ``plan``."""
    parser = commands.add_parser(
        "plan",
        description="Plan the next batches of a table and print one line, or one JSON object, for each. Nothing is "
        "committed: the same command prints the same batches again.",
    )
    common.add_stream(parser, may_be_in_file=True)
    fleet.add_file(parser)
    common.add_storage(parser, staging_required=False)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only read and print; with --stream, from its position in staging, whoever it belongs to",
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="only read, and print totals of everything that is left; with --stream, from its position in staging",
    )
    parser.add_argument(
        "--batches-per-application",
        type=int,
        default=BATCHES_PER_APPLICATION,
        metavar="N",
        help="with --estimate: batches in one Spark application (default: %(default)s)",
    )
    parser.add_argument(
        "--from",
        dest="offset",
        metavar="OFFSET_JSON",
        help="plan from this offset (exclusive); an existing stream must have started there",
    )
    parser.add_argument("--max-batches", type=int, metavar="N", help="plan at most N batches")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.set_defaults(command=plan)
    parser = commands.add_parser("latest", description="Print the newest version.")
    parser.add_argument("table", metavar="TABLE", help="URI or path of a Delta table, or its name")
    add_catalog(parser)
    parser.add_argument(
        "--storage-option", metavar="KEY=VALUE", action="append", default=[], help=common.STORAGE_OPTION_HELP
    )
    parser.set_defaults(command=latest)


def latest(arguments: argparse.Namespace) -> int:
    """Perform ``fds latest``."""
    from airflow_provider_fds.delta.reader.log import DeltaLog

    print(DeltaLog(common.open_table(arguments, arguments.table)).latest())
    return EXIT_OK


def plan(arguments: argparse.Namespace) -> int:
    """Perform ``fds plan``."""
    if arguments.max_batches is not None and arguments.max_batches < 1:
        raise ConfigurationError(f"--max-batches must be 1 or more, got {arguments.max_batches}")
    if arguments.file is not None:
        from airflow_provider_fds.cli.fleet.plan import plan_fleet

        return plan_fleet(arguments, estimate)
    fleet.require(arguments, [("table", "TABLE")])
    _settle_staging(arguments)
    if arguments.estimate:
        return _estimate(arguments)
    if not arguments.dry_run and not arguments.staging:
        raise ConfigurationError(
            "fds plan needs --stream NAME and --staging DIR to write plans and manifests, or --dry-run or --estimate "
            "to write nothing"
        )
    stream = common.stream_of(arguments)
    if arguments.offset and stream.options.is_bounded:
        raise ConfigurationError("--from and version_as_of or timestamp_as_of cannot be combined: omit one of them")
    number = 0
    outcome: Outcome = Outcome(None)
    rows = _shown(arguments, stream) if arguments.dry_run else _written(arguments, stream)
    with Waiting("planning", is_shown=arguments.output == "text") as waiting:
        for row in rows:
            if isinstance(row, Outcome):
                outcome = row
                break
            number += 1
            waiting.pause()
            print(json.dumps(row) if arguments.output == "json" else _line(row), flush=True)
    return _end(arguments, outcome, number)


def _settle_staging(arguments: argparse.Namespace) -> None:
    """Leave a staging folder in the arguments only if a stream in it is planned; that of the environment is optional.

    Raises:
        ConfigurationError: A folder is given, but no stream, or another place to begin.
    """
    is_anywhere = not arguments.stream or (arguments.dry_run and arguments.offset)
    if is_anywhere and arguments.staging == common.staging_of_environment():
        arguments.staging = None
    if arguments.dry_run and arguments.staging and arguments.offset:
        raise ConfigurationError(
            "--from and --staging cannot be combined with --dry-run: omit --staging to read from the offset, or --from "
            "to read from the position of the stream"
        )
    if arguments.staging:
        fleet.require(arguments, [("stream", common.STREAM_NEEDED)])


def _end(arguments: argparse.Namespace, outcome: Outcome, number: int) -> int:
    """Print how planning ended, after ``number`` batches, and return the exit code."""
    error, is_more, finished, note, waiting = outcome
    if arguments.output == "json":
        print(json.dumps(end_of(error, is_more=is_more, is_finished=bool(finished), note=note, waiting=waiting)))
    elif finished or waiting:
        print(finished or waiting)
    elif error is None:
        print("more versions are waiting" if is_more else "up to date" if number else "nothing new")
    else:
        print(f"stopped: {shown(error, arguments)}")
    return EXIT_OK if error is None else error.exit_code


def _estimate(arguments: argparse.Namespace) -> int:
    """Print the totals of everything that is left."""
    check_arguments(arguments)
    with Waiting("planning", is_shown=arguments.output == "text"):
        found, outcome = estimate(arguments, common.stream_of(arguments))
    if arguments.output == "json":
        print(json.dumps(found))
    else:
        print("\n".join(lines(found)))
    return _end(arguments, outcome, found["batches"])


def estimate(arguments: argparse.Namespace, stream: DeltaStream) -> tuple[dict[str, Any], Outcome]:
    """Return the totals of everything that a stream has left (see :func:`.estimate.totals`), and how that ends.

    Args:
        arguments: The arguments; with ``staging``, the stream is read from its position.
        stream: The stream.
    """
    connected = known_stream(arguments, stream)
    outcome = Outcome(None)

    def batches() -> Iterator[dict[str, Any]]:
        nonlocal outcome
        for row in _dry(arguments, stream) if connected is None else _left(connected):
            if isinstance(row, Outcome):
                outcome = row
                return
            yield row

    found = totals(batches(), None if connected is None else connected.state, arguments.batches_per_application)
    return found, outcome


def _shown(arguments: argparse.Namespace, stream: DeltaStream) -> Iterator[dict[str, Any] | Outcome]:
    """Return the next batches, from the position of the stream if it exists. Writes nothing."""
    from airflow_provider_fds.stream.polling.min_batch import MinBatch

    connected = known_stream(arguments, stream)
    rows = _dry(arguments, stream) if connected is None else _left(connected, MinBatch.of(stream))
    for number, row in enumerate(rows):
        if number == arguments.max_batches and not isinstance(row, Outcome):
            yield Outcome(None, is_more=True)
            return
        yield row


def _left(connected: ConnectedStream, minimum: MinBatch | None = None) -> Iterator[dict[str, Any] | Outcome]:
    """Return the batches that are planned and all that follow them. Writes nothing."""
    from airflow_provider_fds.stream.planning.changed_options import warn_about_changed_options
    from airflow_provider_fds.stream.position.source_unchanged import check_position

    state = connected.state
    warn_about_changed_options(connected)
    for batch in state.planned:
        yield _row(batch, batch.batch_id, batch.manifest)
    assert state.position is not None  # noqa: S101  # the caller has checked it
    position = Offset.from_json(state.planned[-1].end if state.planned else state.position)
    if not state.planned:
        check_position(connected.log, state)
    planner = _planner(connected, position)
    if isinstance(planner, Outcome):
        yield planner
    else:
        for row in _numbered(planner, connected.stream, minimum, first=state.next_batch_id):
            yield row._replace(note=connected.options_note) if isinstance(row, Outcome) else row


def _written(arguments: argparse.Namespace, stream: DeltaStream) -> Iterator[dict[str, Any] | Outcome]:
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.stream.run.session import StreamSession

    context = common.context_of(arguments, owner=Owner.of_plan(arguments.deployment))
    start = Offset.from_json(arguments.offset) if arguments.offset else None
    session = StreamSession(stream, context)
    work = session.begin(None, max_batches=arguments.max_batches or _NO_LIMIT, take_over=False, start=start)
    for batch in work.batches[: arguments.max_batches]:
        location = session.connected.staging_location(session.connected.folder.below(batch.manifest))
        yield _row(batch, batch.batch_id, hadoop_path(location))
    if arguments.max_batches is not None and len(work.batches) > arguments.max_batches:
        found = Outcome(None, is_more=True)
    elif work.batches:
        found = _after_planned(session, Offset.from_json(work.batches[-1].end))
    else:
        waits = work.status == "up_to_date"
        found = Outcome(work.warning, finished="" if waits else work.reason, waiting=work.reason if waits else "")
    yield found._replace(note=session.option_notes())


def _after_planned(session: StreamSession, end: Offset) -> Outcome:
    """Return what follows the planned batches: an error that stops the stream, or whether there is more to plan."""
    planner = _planner(session.connected, end)
    if isinstance(planner, Outcome):
        return planner._replace(finished="")
    for batch in planner:
        if batch.files:
            return Outcome(None, is_more=True)
    return Outcome(planner.outcome.error if planner.outcome is not None else None)


def _planner(connected: ConnectedStream, position: Offset) -> BatchPlanner | Outcome:
    """Return the planner of an open stream from a position to the newest version, or that the stream is finished."""
    from airflow_provider_fds.source.planning.plan import BatchPlanner
    from airflow_provider_fds.stream.planning.plan_batches import allowances_of
    from airflow_provider_fds.stream.planning.whole_commits import keeps_replaced_rows
    from airflow_provider_fds.stream.position.stream_end import end_of

    state, stream = connected.state, connected.stream
    end = end_of(connected, state)
    if end is not None and end.is_reached(position):
        return Outcome(None, finished=end.describe(stream.name, connected.log.table_uri))
    newest = connected.log.latest()
    return BatchPlanner(
        connected.log,
        position,
        None,
        stream.options,
        newest if end is None else end.target(position, newest),
        snapshot=connected.frozen_snapshot(),
        snapshot_storage=connected.staging,
        snapshot_timestamp_ms=None if state.snapshot is None else state.snapshot.timestamp_ms,
        allowances=allowances_of(connected, state),
        keeps_replaced_rows=keeps_replaced_rows(stream, None, state.sink),
    )


def _dry(arguments: argparse.Namespace, stream: DeltaStream) -> Iterator[dict[str, Any] | Outcome]:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.source.planning.end import known_end
    from airflow_provider_fds.source.planning.plan import BatchPlanner
    from airflow_provider_fds.source.planning.start import SnapshotStart, resolve_start, starting_state
    from airflow_provider_fds.stream.planning.whole_commits import keeps_replaced_rows
    from airflow_provider_fds.stream.polling.min_batch import MinBatch
    from airflow_provider_fds.stream.position.source_unchanged import check_table

    log = DeltaLog(common.open_table(arguments, stream.table))
    start = Offset.from_json(arguments.offset) if arguments.offset else resolve_start(log, stream.options)
    if start is None:
        yield Outcome(None)
        return
    position = start.offset if isinstance(start, SnapshotStart) else start
    end = known_end(log, stream.options, position)
    if end is not None and end.is_reached(position):
        yield Outcome(None, finished=end.describe(stream.name, log.table_uri))
        return
    newest = log.latest()
    target = newest if end is None else end.target(position, newest)
    # an estimate is about everything that is left
    minimum = None if arguments.estimate else MinBatch.of(stream)
    if isinstance(start, Offset) and not start.is_initial_snapshot:
        check_table(log, start)
        log.verify_position(start.version)
    if isinstance(start, SnapshotStart) or start.is_initial_snapshot:
        planned = _with_frozen(log, position, stream, target, minimum)
    else:
        # a new stream begins with the table's state at its first version, --from with the state before it
        state = None if arguments.offset else starting_state(log, start)
        whole = keeps_replaced_rows(stream, None, None)
        planner = BatchPlanner(log, start, state, stream.options, target, keeps_replaced_rows=whole)
        planned = _numbered(planner, stream, minimum)
    yield from planned


def _with_frozen(
    log: DeltaLog, position: Offset, stream: DeltaStream, target: int, minimum: MinBatch | None
) -> Iterator[dict[str, Any] | Outcome]:
    """Plan from an initial snapshot that is frozen in a temporary folder, removed afterwards."""
    from airflow_provider_fds.delta.reader.scratch import scratch_folder
    from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot
    from airflow_provider_fds.delta.storage.open import open_storage
    from airflow_provider_fds.source.planning.plan import BatchPlanner
    from airflow_provider_fds.stream.planning.whole_commits import keeps_replaced_rows

    with scratch_folder("fds-dry-run-") as folder:
        staging = open_storage(folder)
        frozen = freeze_snapshot(log, position.version, staging, "snapshot")
        planner = BatchPlanner(
            log,
            position,
            None,
            stream.options,
            target,
            snapshot=frozen,
            snapshot_storage=staging,
            keeps_replaced_rows=keeps_replaced_rows(stream, None, None),
        )
        yield from _numbered(planner, stream, minimum)


def _numbered(
    planner: BatchPlanner, stream: DeltaStream, minimum: MinBatch | None = None, *, first: int = 0
) -> Iterator[dict[str, Any] | Outcome]:
    from airflow_provider_fds.stream.planning.unknown_rows import UnknownRows

    unknown_rows = UnknownRows(stream)
    batch_id, waiting = first, ""
    for batch in planner:
        if minimum is not None and planner.has_ended and (found := minimum.waiting_batch(batch)) is not None:
            waiting = found.describe()
            break
        if batch.files:
            unknown_rows.see(batch)
            yield _row(batch, batch_id)
            batch_id += 1
    unknown_rows.warn()
    yield Outcome(planner.outcome.error if planner.outcome is not None else None, waiting=waiting)


def _row(batch: SourceBatch | PlannedBatch, batch_id: int, manifest: str | None = None) -> dict[str, Any]:
    return {
        "batch_id": batch_id,
        "start": _position(batch.start),
        "end": _position(batch.end),
        "first_version": batch.first_version,
        "last_version": batch.last_version,
        "num_files": batch.num_files,
        "num_bytes": batch.num_bytes,
        "num_rows": batch.num_rows,
        "manifest": manifest,
        "skipped": [{"version": c.version, "operation": c.operation, "reason": c.reason} for c in batch.skipped],
    }


def _position(offset: Offset | str) -> Any:
    return json.loads(offset if isinstance(offset, str) else offset.to_json())


def _line(row: dict[str, Any]) -> str:
    start, end = json.dumps(row["start"]), json.dumps(row["end"])
    versions = describe_covered(start, end, row["first_version"], row["last_version"])
    rows = "rows unknown" if row["num_rows"] is None else f"{row['num_rows']:,} rows"
    skipped = f", {len(row['skipped'])} commits skipped" if row["skipped"] else ""
    return (
        f"batch {row['batch_id']}: {versions}, {row['num_files']:,} files, {row['num_bytes']:,} bytes, {rows}{skipped}"
    )
