"""``fds run``: plan, load with a local Spark, commit, until the sink is up to date."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.fleet import fleet
from airflow_provider_fds.cli.loading import Loading, LogOfJob
from airflow_provider_fds.cli.messages import STAGING_NEEDED, end_of, shown
from airflow_provider_fds.cli.sink import add_sink, sink_of
from airflow_provider_fds.cli.terminal import calling_on_sigterm, leaving_on_sigterm
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError, FdsError
from airflow_provider_fds.ledger.measures import describe_failed
from airflow_provider_fds.sizes import format_count

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.backends.base import SparkBackend
    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.cli.command_list import CommandParsers
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.attempt.result import Collected, PhaseSeconds, RunWork
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream
    from airflow_provider_fds.stream.run.session import StreamSession

logger = logging.getLogger(__name__)

#: What one stream needs; a file has it for each stream.
_NEEDED: Final = (
    ("table", "TABLE"),
    ("stream", common.STREAM_NEEDED),
    ("staging", STAGING_NEEDED),
)


def add_commands(commands: CommandParsers) -> None:
    """Add ``run``."""
    parser = commands.add_parser(
        "run",
        description="Plan the next batches, load them into the sink with spark-submit on this machine, and commit "
        "them, up to the newest version of the table. If it is killed at any moment, run it again: it continues, and "
        "no row is lost or loaded twice.",
    )
    common.add_stream(parser, may_be_in_file=True)
    fleet.add_file(parser)
    common.add_storage(parser, staging_required=True, may_be_in_file=True)
    add_loading(parser, sink="created if missing")
    parser.add_argument(
        "--linger",
        metavar="TIME",
        type=common.duration,
        help="once everything is loaded, keep Spark, poll the table, and load what comes, until "
        "nothing has come for this long, as 10m; SIGTERM then ends the command without an error",
    )
    parser.set_defaults(
        command=run,
        when_interrupted=" No row is lost or loaded twice: run the same command again, and it continues. `fds status` "
        "shows how far it is",
    )


def add_loading(parser: argparse.ArgumentParser, *, sink: str) -> None:
    """Add the arguments of the commands that load with Spark; ``sink`` is what the help adds about the sink."""
    add_sink(parser, sink)
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="also keep a readable copy of the committed offset in this file"
    )
    parser.add_argument("--master", default="local[2]", help="Spark master (default: %(default)s)")
    parser.add_argument(
        "--deploy-mode",
        choices=("client", "cluster"),
        help="cluster: the master's cluster runs Spark's driver; if the command is killed, the driver goes on, and the "
        "same command finds it again (default: client, on this machine)",
    )
    common.add_own_spark(parser, "3.5 to 4.2")
    parser.add_argument(
        "--remote",
        metavar="sc://HOST:PORT",
        help="a running Spark Connect server, instead of --master; the token is read from the environment variable "
        "SPARK_CONNECT_AUTHENTICATE_TOKEN",
    )
    parser.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a Spark setting; may be repeated"
    )
    parser.add_argument(
        "--unlock",
        action="store_true",
        help="take over batches of an `fds run` on another machine, as after `fds unlock`; use only if that run is "
        "gone",
    )
    parser.add_argument(
        "--allow-overlap",
        action="store_true",
        help="append versions even if another stream also appends them to the same sink",
    )
    parser.add_argument(
        "--expect",
        metavar="EXPRESSION=ACTION",
        action="append",
        default=[],
        help="what each row should satisfy before it is written, a SQL expression; of a row that does not, ACTION says "
        "what becomes: warn (it is written and counted), drop (left out and counted), reject (written into the table "
        "of --rejects instead) or fail (the batch fails); may be repeated",
    )
    parser.add_argument("--rejects", metavar="URI", help="Delta table of rejected rows; the first one creates it")
    parser.add_argument(
        "--max-rejected",
        metavar="SHARE",
        type=float,
        help="with --expect: fail a batch of which more than this share, such as 0.01, would be left out",
    )
    parser.add_argument("--max-batches", type=int, metavar="N", help="load at most N batches")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: %(default)s")


def run(arguments: argparse.Namespace) -> int:
    """Perform ``fds run``."""
    if arguments.file is not None:
        from airflow_provider_fds.cli.fleet.run import run_fleet

        return run_fleet(arguments)
    has_sink = arguments.sink_option or arguments.sink_postgres is not None
    fleet.require(arguments, _NEEDED if has_sink else (*_NEEDED, ("sink", "--sink")))
    return load(arguments, common.stream_of(arguments), sink_of(arguments))


def load(arguments: argparse.Namespace, stream: DeltaStream, sink: Sink) -> int:
    """Load a stream into a sink until it is up to date, finished, or at the given limit."""
    from airflow_provider_fds.backends.base import UserArguments
    from airflow_provider_fds.backends.registry import command_line_backend
    from airflow_provider_fds.stream.run.reporting import reporting_end
    from airflow_provider_fds.stream.run.session import StreamSession

    if arguments.max_batches is not None and arguments.max_batches < 1:
        raise ConfigurationError(f"--max-batches must be 1 or more, got {arguments.max_batches}")
    given = UserArguments(
        conf=common.pairs(arguments.conf, "--conf"),
        spark_binary=arguments.spark_binary,
        delta_version=arguments.delta_version,
        deploy_mode=arguments.deploy_mode,
    )
    loading = Loading(is_shown=arguments.output == "text")

    def tell(line: str) -> None:
        loading.line(line)
        logger.info("%s", line)

    backend = command_line_backend(arguments.master, arguments.remote, given, tell)
    backend.check()
    owner = common.process_owner(arguments.deployment)
    session = StreamSession(stream, common.context_of(arguments, owner=owner, sink=sink))
    with reporting_end(session):
        return _load_all(arguments, session, sink, backend, loading)


def _load_all(
    arguments: argparse.Namespace,
    session: StreamSession,
    sink: Sink,
    backend: SparkBackend,
    loading: Loading,
) -> int:
    from airflow_provider_fds.stream.attempt.result import PhaseSeconds
    from airflow_provider_fds.stream.run.limits import Limits
    from airflow_provider_fds.stream.run.linger import Linger

    phases = PhaseSeconds()
    linger = Linger.of(getattr(arguments, "linger", None))
    session.limit(Limits(max_in_all=arguments.max_batches, linger=linger))
    # so that Spark ends with this process, as on Ctrl-C
    with leaving_on_sigterm(), nullcontext() if linger is None else backend.lingering():
        while True:
            with phases.phase("plan"), calling_on_sigterm(None if linger is None else linger.end):
                work = session.next_work(sink)
            if work is None:
                break
            _load(session, sink, work, backend, phases, loading, arguments.output)
    error, waiting = session.stopped, ""
    if session.idle is not None:
        error = session.idle.warning if session.idle.status == "paused" else error
        waiting = session.idle.reason if session.idle.status in ("up_to_date", "waiting") else ""
    _show_end(session, error, arguments, phases, is_more=session.is_more, waiting=waiting)
    return EXIT_OK if error is None else error.exit_code


def _load(
    session: StreamSession,
    sink: Sink,
    work: RunWork,
    backend: SparkBackend,
    phases: PhaseSeconds,
    loading: Loading,
    output: str,
) -> None:
    """Run one Spark application, and commit each batch as soon as it is done."""
    from airflow_provider_fds.backends.base import Application
    from airflow_provider_fds.stream.attempt.batch_failure import with_ending
    from airflow_provider_fds.stream.attempt.batch_versions import describe_plan

    shown = _Shown(output, loading)
    application = Application.of_work(session, sink, work, backend, on_commit=shown)
    work = application.work
    plan = f"closing the epochs before {work.epoch} in {sink.describe()}"
    if work.batches:
        plan = describe_plan(work.batches, session.connected.state.snapshot)
        plan = f"loading {session.connected.table.uri} into {sink.describe()}: {plan}"
    with loading.application(plan, len(work.batches)):
        with phases.phase("spark"), redirect_stdout(LogOfJob(loading.line)):
            spark_error = backend.run(application).error
        with phases.phase("commit"):
            if application.has_rest_of_left(spark_error):
                shown(session.collect(work, is_running=True))
                return
            collected = session.collect(work, spark_failed=spark_error is not None)
        shown(collected)
    if collected.failure is not None:
        raise with_ending(collected.failure, spark_error)


class _Shown:
    """Prints each batch of one application once it is committed, to the stdout at the time of creation."""

    def __init__(self, output: str, loading: Loading) -> None:
        self._output = output
        self._loading = loading
        self._out = sys.stdout
        self._count = 0

    def __call__(self, collected: Collected) -> None:
        """Print the batches that were committed since the last call."""
        done = [report for report in collected.reports if report.is_done]
        for report in done[self._count :]:
            text = self._describe(report)
            if self._loading.batch(text):
                print(text, file=self._out, flush=True)
        self._count = max(self._count, len(done))

    def _describe(self, report: AttemptReport) -> str:
        if self._output == "json":
            facts = {
                "batch_id": report.batch_id,
                "rows": report.rows_written,
                "rows_read": report.rows_read,
                "files_written": report.files_written,
                "bytes_written": report.bytes_written,
                "sink_version": report.sink_version,
                "seconds": report.seconds,
                **(
                    {"rows_rejected": report.rows_rejected, "failed_rows": report.failed_rows}
                    if report.failed_rows
                    else {}
                ),
                **({"warnings": list(report.warnings)} if report.warnings else {}),
            }
            return json.dumps(facts)
        rows = "rows unknown" if report.rows_written is None else format_count(report.rows_written, "row")
        version = "" if report.sink_version is None else f", sink version {report.sink_version}"
        failed = describe_failed(report.failed_rows, report.rows_rejected)
        return f"batch {report.batch_id}: {rows}{failed}{version}"


def _show_end(
    session: StreamSession,
    error: FdsError | None,
    arguments: argparse.Namespace,
    phases: PhaseSeconds,
    *,
    is_more: bool,
    waiting: str,
) -> None:
    from airflow_provider_fds.stream.position.stream_end import finished_reason

    finished = finished_reason(session.connected) if error is None and not is_more else None
    if arguments.output == "json":
        note = session.option_notes()
        end = end_of(error, is_more=is_more, is_finished=finished is not None, note=note, waiting=waiting)
        print(json.dumps(end))
        return
    result = session.result()
    if result is not None:
        result = replace(result, seconds={**phases.to_dict(), **result.seconds})
        rows = "rows unknown" if result.rows is None else format_count(result.rows, "row")
        print(f"{rows} in {format_count(result.batches, 'batch', 'batches')}", flush=True)
        logger.info("%s", result.describe())
    if error is not None:
        print(f"fds: stopped: {shown(error, arguments)}", file=sys.stderr)
        return
    if finished is not None or waiting or result is None:
        print(finished or waiting or "nothing new", flush=True)
