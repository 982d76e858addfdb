"""``fds monitor``: watch all streams of a staging folder, as lines or as a scrape endpoint for Prometheus."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.catalogs import add_catalog
from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError, FdsError
from airflow_provider_fds.sizes import format_count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from airflow_provider_fds.cli.command_list import CommandParsers
    from airflow_provider_fds.stream.monitoring.monitor import StreamMonitor
    from airflow_provider_fds.stream.monitoring.status import StreamStatus

_DEFAULT_ADDRESS: Final = "127.0.0.1:9184"


def add_commands(commands: CommandParsers) -> None:
    """Add ``monitor``."""
    parser = commands.add_parser(
        "monitor",
        epilog="It does not need Airflow. It reads ledgers and tables, and writes the status files for the page Delta "
        "streams in Airflow's UI. A round costs one request for each table that has not changed.",
    )
    common.add_storage(parser, staging_required=True)
    add_catalog(parser, of_ledger=True)
    common.add_interval(parser, default=timedelta(seconds=60), examples="30s or 5m")
    parser.add_argument(
        "--output",
        choices=("text", "json", "prometheus"),
        default="text",
        help="text and json: a line for each stream whose state or lag in versions has changed; prometheus: a scrape "
        "endpoint (default: %(default)s)",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="with --output prometheus: address of the endpoint, which has no authentication "
        f"(default: {_DEFAULT_ADDRESS})",
    )
    parser.add_argument("--no-status-files", action="store_true", help="write nothing to staging")
    parser.set_defaults(command=monitor)


def monitor(arguments: argparse.Namespace) -> int:
    """Perform ``fds monitor``."""
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.stream.monitoring.monitor import StreamMonitor

    interval = common.interval_seconds(arguments)
    is_endpoint = arguments.output == "prometheus"
    if arguments.listen is not None and not is_endpoint:
        raise ConfigurationError("--listen needs --output prometheus")
    context = common.context_of(arguments, owner=Owner.of_plan(arguments.deployment))
    watched = StreamMonitor(lambda: context, places_for=partial(common.places_for, arguments))
    try:
        with _endpoint(arguments.listen or _DEFAULT_ADDRESS) if is_endpoint else _lines(arguments.output) as show:
            while True:
                began = time.monotonic()
                try:
                    statuses = watched.poll()
                    show.statuses(statuses)
                    if not arguments.no_status_files:
                        _write_status_files(watched, statuses, interval)
                except FdsError as problem:
                    if not problem.retryable:
                        raise
                    show.failed()
                    print(f"fds monitor: this round failed: {problem}", file=sys.stderr, flush=True)
                time.sleep(max(0.0, interval - (time.monotonic() - began)))
    except KeyboardInterrupt:
        return EXIT_OK


def _write_status_files(watched: StreamMonitor, statuses: list[StreamStatus], interval: float) -> None:
    failure = watched.write_status_files(statuses, interval_seconds=interval)
    if failure is not None:
        text = f"fds monitor: status files were not written: {failure}. --no-status-files switches them off"
        print(redacted(text), file=sys.stderr, flush=True)


class ChangedLines:
    """Prints a line for each stream that has changed."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._last: dict[str, object] = {}

    def statuses(self, found: list[StreamStatus]) -> None:
        """Show the statuses of a round."""
        for one in found:
            key = (one.condition, one.lag_versions, one.reason_code)
            if self._last.get(one.name) != key:
                self._last[one.name] = key
                line = json.dumps(one.to_dict()) if self._output == "json" else _line(one)
                print(line, flush=True)
        names = {one.name for one in found}
        self._last = {name: key for name, key in self._last.items() if name in names}

    def failed(self) -> None:
        """Show that a round failed; stderr has the reason."""


class _Endpoint:
    """What the scrape endpoint serves: the metrics of the last round, nothing if it failed."""

    def __init__(self) -> None:
        self.text: str | None = None

    def statuses(self, found: list[StreamStatus]) -> None:
        """Serve the statuses of a round."""
        from airflow_provider_fds.stream.monitoring.metrics import exposition

        self.text = exposition(found)

    def failed(self) -> None:
        """Serve an error, so that old values do not look like new ones."""
        self.text = None


@contextmanager
def _lines(output: str) -> Iterator[ChangedLines]:
    yield ChangedLines(output)


@contextmanager
def _endpoint(address: str) -> Iterator[_Endpoint]:
    """Serve ``/metrics`` at ``host:port`` while the body runs.

    Raises:
        ConfigurationError: The address is invalid or in use.
    """
    served = _Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = served.text
            if self.path.split("?")[0] != "/metrics":
                self._answer(404, "The metrics are at /metrics.\n")
            elif text is None:
                self._answer(503, "The last round failed, or none has ended yet.\n")
            else:
                self._answer(200, text)

        def _answer(self, status: int, text: str) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_args: Any) -> None:
            """Log no request."""

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigurationError(f"--listen must be HOST:PORT, such as {_DEFAULT_ADDRESS}, got {address!r}")
    try:
        server = ThreadingHTTPServer((host, int(port)), Handler)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"cannot listen on {address}: {error}. Choose another --listen") from error
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    name = f"{server.server_address[0]!s}:{server.server_address[1]}"
    print(f"fds monitor: metrics at http://{name}/metrics", file=sys.stderr, flush=True)
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _line(one: StreamStatus) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = f"{now} {one.name}: {one.condition.replace('_', ' ')}"
    if one.lag_versions:
        age = "" if not one.lag_seconds else f", the oldest {format_duration(timedelta(seconds=one.lag_seconds))} old"
        said += f", {format_count(one.lag_versions, 'version')} to read{age}"
    if one.pending_files:
        said += f", {one.pending_files:,} files of {one.pending_bytes or 0:,} bytes"
    return said if one.problem is None else f"{said}: [{one.reason_code}] {one.problem}"
