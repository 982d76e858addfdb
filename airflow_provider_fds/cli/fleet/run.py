"""``fds run --file FILE``: load the streams of a file, each group in one Spark application at a time."""

from __future__ import annotations

import json
import logging
import sys
import time
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.estimate import BATCHES_PER_APPLICATION
from airflow_provider_fds.cli.fleet import fleet
from airflow_provider_fds.cli.fleet.progress import FleetProgress
from airflow_provider_fds.cli.loading import LogOfJob
from airflow_provider_fds.cli.messages import shown
from airflow_provider_fds.cli.terminal import Waiting, calling_on_sigterm, leaving_on_sigterm
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError, FdsError
from airflow_provider_fds.sizes import format_count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from airflow_provider_fds.backends.base import SparkBackend, UserArguments
    from airflow_provider_fds.cli.fleet.fleet import FoundGroup
    from airflow_provider_fds.fleet.result import FleetResult, StreamOutcome
    from airflow_provider_fds.fleet.session import FleetSession
    from airflow_provider_fds.fleet.streams_file.group import FleetGroup
    from airflow_provider_fds.fleet.value import FleetStream
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.run.session import StreamSession

#: What a file replaces.
_OF_ONE: Final = (
    ("table", "TABLE"),
    ("stream", "--stream"),
    ("option", "--option"),
    ("sink", "--sink"),
    ("sink_postgres", "--sink-postgres"),
    ("checkpoint", "--checkpoint"),
    ("sink_option", "--sink-option"),
    ("allow_overlap", "--allow-overlap"),
    ("expect", "--expect"),
    ("max_rejected", "--max-rejected"),
    ("rejects", "--rejects"),
    ("max_batches", "--max-batches"),
)

#: Spark settings that arguments of SparkSubmitOperator stand for, where spark-submit runs on this machine.
_CONF_OF: Final = {
    "archives": "spark.archives",
    "driver_memory": "spark.driver.memory",
    "executor_cores": "spark.executor.cores",
    "exclude_packages": "spark.jars.excludes",
    "executor_memory": "spark.executor.memory",
    "files": "spark.files",
    "jars": "spark.jars",
    "num_executors": "spark.executor.instances",
    "packages": "spark.jars.packages",
    "py_files": "spark.submit.pyFiles",
    "repositories": "spark.jars.repositories",
    "total_executor_cores": "spark.cores.max",
    "yarn_queue": "spark.yarn.queue",
}

#: Exit code of a stream that failed with an error that FDS does not know.
_EXIT_UNKNOWN: Final = 1


def run_fleet(arguments: argparse.Namespace) -> int:
    """Perform ``fds run --file FILE``."""
    from airflow_provider_fds.fleet.retirement import retire_gone

    fleet.refuse_together(arguments, _OF_ONE)
    # what became of each stream is printed at the end
    logging.getLogger("airflow_provider_fds.fleet.session").setLevel(logging.CRITICAL)
    context = common.context_of(arguments, owner=common.process_owner(arguments.deployment))
    groups = fleet.find_fleet(
        arguments,
        dry_run=False,
        retire=lambda one: retire_gone(one.stream, _context_of(context, arguments, one)),
    )
    results: list[FleetResult] = []
    messages: list[str] = []
    applications = 0
    while True:
        with Waiting("looking for tables", is_shown=arguments.output == "text"):
            found = next(groups, None)
        if found is None:
            break
        fleet.check_staging(arguments, found.streams)
        messages += found.tables.messages()
        result, count = _load(arguments, found, context)
        results.append(result)
        applications += count
    outcomes = [one for result in results for one in result.outcomes]
    _show_end(arguments, outcomes, messages, applications)
    codes = [_exit_code(one) for one in outcomes]
    return max([*codes, *([ConfigurationError.exit_code] if messages else [])], default=EXIT_OK)


def _load(arguments: argparse.Namespace, found: FoundGroup, context: StreamContext) -> tuple[FleetResult, int]:
    """Load the streams of a group until all are up to date; also return the number of Spark applications."""
    from airflow_provider_fds.backends.registry import command_line_backend
    from airflow_provider_fds.fleet.session import FleetSession
    from airflow_provider_fds.stream.run.linger import Linger

    group, streams = found.group, found.streams
    stop_after_ms: int | None = None
    if group.run_time_limit is not None:
        stop_after_ms = int((time.time() + group.run_time_limit.total_seconds()) * 1000)
    linger = Linger.of(arguments.linger, ends_at_ms=stop_after_ms)
    number = 0
    with FleetProgress(group.name, [one.name for one in streams], is_shown=arguments.output == "text") as progress:
        backend = command_line_backend(arguments.master, arguments.remote, _user(arguments, group), progress.line)
        backend.check()
        session = FleetSession(
            streams,
            lambda one: _context_of(context, arguments, one),
            fleet=found.name,
            deployment=arguments.deployment,
            max_batches=group.batches_per_application or BATCHES_PER_APPLICATION,
            stop_after_ms=stop_after_ms,
            stop_on_failure=group.on_stream_failure == "fail_fast",
            watch=lambda session: _watch(session, progress),
            apart=backend.apart,
            drivers=backend,
            linger=linger,
        )
        # so that Spark ends with this process, as on Ctrl-C
        with leaving_on_sigterm(), nullcontext() if linger is None else backend.lingering():
            while True:
                with calling_on_sigterm(None if linger is None else linger.end):
                    runs = session.next_work()
                if not runs:
                    return session.finish(), number
                progress.loading([one.name for one in runs])
                spec_uri = session.write_jobs(
                    parallelism=group.parallelism, max_bytes_in_flight=group.max_bytes_in_flight
                )
                if spec_uri is not None:
                    number += 1
                    _run(backend, session, spec_uri, group, progress)


def _watch(session: StreamSession, progress: FleetProgress) -> Callable[[Exception | None], None]:
    """Show what a stream does, and report how its run ends."""
    from airflow_provider_fds.stream.run.reporting import write_end

    show = progress.watch(session)

    def end(error: Exception | None) -> None:
        write_end(session, error)
        show(error)

    return end


def _run(
    backend: SparkBackend, session: FleetSession, spec_uri: str, group: FleetGroup, progress: FleetProgress
) -> None:
    """Run one application, and commit what it does."""
    from airflow_provider_fds.backends.fleet_application import FleetApplication, FleetPart

    parts = tuple(FleetPart(one.session, one.stream.sink, one.work, one.spec_uri) for one in session.runs)
    batches = format_count(sum(len(part.work.batches) for part in parts), "batch", "batches")
    progress.say(f"group {group.name}: {batches} of {format_count(len(parts), 'stream')} in one Spark application")
    application = FleetApplication(
        parts, spec_uri, session.commit_reported, session.files.folder, parallelism=group.parallelism
    )
    error: Exception | None
    try:
        with redirect_stdout(LogOfJob(progress.line)):
            error = backend.run_fleet(application).error
    except FdsError as failure:
        error = failure
    session.collect(error)


def _context_of(context: StreamContext, arguments: argparse.Namespace, one: FleetStream) -> StreamContext:
    """Return the context of a stream: where its table is, its staging folder, and the file of its checkpoint."""
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore

    kind, _, place = one.stream.checkpoint.partition(":")
    store = FileCheckpointStore(place) if kind == "file" else None
    own = fleet.for_stream(arguments, one)
    return replace(
        context,
        staging_uri=own.staging,
        places=common.places_of(own),
        checkpoints=store,
        sink_places=common.sink_places(arguments, one.sink),
    )


def _user(arguments: argparse.Namespace, group: FleetGroup) -> UserArguments:
    from airflow_provider_fds.backends.base import UserArguments

    given = dict(group.spark)
    if "properties_file" in given:
        raise ConfigurationError(
            f"group {group.name!r} has the properties_file {given['properties_file']!r}, which only an Airflow task "
            "passes to spark-submit. Give its settings as conf of the group, or with --conf."
        )
    conf = {_CONF_OF[name]: str(value) for name, value in given.items() if name in _CONF_OF}
    return UserArguments(
        conf={**conf, **given.get("conf", {}), **common.pairs(arguments.conf, "--conf")},
        spark_binary=arguments.spark_binary or given.get("spark_binary"),
        delta_version=arguments.delta_version or given.get("delta_version"),
        deploy_mode=arguments.deploy_mode,
    )


def _exit_code(one: StreamOutcome) -> int:
    error = one.error or one.stopped
    if error is None:
        return EXIT_OK
    return error.exit_code if isinstance(error, FdsError) else _EXIT_UNKNOWN


def _show_end(
    arguments: argparse.Namespace, outcomes: Sequence[StreamOutcome], messages: Sequence[str], applications: int
) -> None:
    failed = [one for one in outcomes if one.error is not None or one.stopped is not None]
    if arguments.output == "json":
        for one in outcomes:
            print(json.dumps({"stream": one.stream, **one.to_dict()}))
        total: dict[str, Any] = {"streams": len(outcomes), "stopped": len(failed), "applications": applications}
        print(json.dumps({**total, "problems": list(messages)}))
        return
    for one in outcomes:
        print(f"{one.stream}: {_describe(one)}")
    print(
        f"{format_count(len(outcomes), 'stream')}, {len(failed):,} stopped, "
        f"{format_count(applications, 'Spark application' if arguments.linger is None else 'round')}",
        flush=True,
    )
    for one in failed:
        error = one.error or one.stopped
        text = shown(error, arguments) if isinstance(error, FdsError) else f"{type(error).__name__}: {error}"
        print(f"fds: {one.stream}: {text}", file=sys.stderr)
    for message in messages:
        print(f"fds: {message}", file=sys.stderr)


def _describe(one: StreamOutcome) -> str:
    """Return what became of a stream, without the text of an error."""
    what = one.outcome.replace("_", " ")
    if one.error is None and one.stopped is not None:
        what = "stopped"
    if one.result is not None:
        rows = "rows unknown" if one.result.rows is None else format_count(one.result.rows, "row")
        done = f"{rows} in {format_count(one.result.batches, 'batch', 'batches')}"
        what = done if what == "loaded" else f"{done}, then {what}"
    return f"{what}: {one.reason}" if one.reason else what
