"""``fds connect-server``: a Spark Connect server that can load batches, in the foreground."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.terminal import leaving_on_sigterm
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError, ServerLostError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.cli.command_list import CommandParsers
    from airflow_provider_fds.spark.submission.submit import SubmitArguments

_LAST_PORT = 65535
_MEMORY = "spark.driver.memory"


def add_commands(commands: CommandParsers) -> None:
    """Add ``connect-server``."""
    parser = commands.add_parser(
        "connect-server",
        description="Start a Spark Connect server with Delta, the settings that batches need and bounded caches. Print "
        "its URI (sc://HOST:PORT) once it accepts connections, write its log to stderr, and end it on Ctrl-C or "
        "SIGTERM. Clients need the token in the environment variable SPARK_CONNECT_AUTHENTICATE_TOKEN, if it is set.",
    )
    parser.add_argument(
        "--bind",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="address to listen on (default: %(default)s, which only this machine reaches); the server has no TLS",
    )
    parser.add_argument("--port", type=_port, default=15002, help="0: a free one (default: %(default)s)")
    parser.add_argument("--master", default="local[2]", help="Spark master (default: %(default)s)")
    parser.add_argument(
        "--driver-memory", metavar="SIZE", default="2g", help="memory of its JVM (default: %(default)s)"
    )
    parser.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a Spark setting; may be repeated"
    )
    parser.add_argument(
        "--s3",
        action="store_true",
        help="for tables on S3: add Spark's S3 file system (700 MB, fetched once) and FDS's log store to the installed "
        "pyspark. A Spark of your own has the one, and always gets the other",
    )
    common.add_own_spark(parser, "4.0 to 4.2")
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="json: an object with url and pid, the process id of the JVM (default: %(default)s)",
    )
    parser.set_defaults(command=connect_server)


def connect_server(given: argparse.Namespace) -> int:
    """Perform ``fds connect-server``."""
    from airflow_provider_fds.spark.installation.cache import SparkSetupError

    with leaving_on_sigterm():
        try:
            return _serve(given, _arguments(given))
        except SparkSetupError as error:
            raise ConfigurationError(str(error), reason=Reason.SPARK_UNUSABLE) from error
        except (KeyboardInterrupt, SystemExit):
            # it has been asked to end, and the server is gone
            return EXIT_OK


def _arguments(given: argparse.Namespace) -> SubmitArguments:
    from airflow_provider_fds.spark.installation.install import java_problem, spark_problem
    from airflow_provider_fds.spark.installation.own_spark import choose_spark
    from airflow_provider_fds.spark.runtime.settings import master_problem
    from airflow_provider_fds.spark.submission.connect_service import server_arguments

    conf = common.pairs(given.conf, "--conf")
    if _MEMORY in conf:
        raise ConfigurationError(f"--conf {_MEMORY}: use --driver-memory", reason=Reason.SPARK_UNUSABLE)
    problems = [problem for problem in [master_problem(given.master)] if problem is not None]
    own_spark = choose_spark(given.master, given.spark_binary)
    if own_spark is None:
        problems += [problem for problem in (java_problem(), spark_problem()) if problem is not None]
    if problems:
        raise ConfigurationError(*problems, subject="Spark on this machine", reason=Reason.SPARK_UNUSABLE)
    return server_arguments(
        bind=given.bind,
        port=given.port,
        master=given.master,
        conf={**conf, _MEMORY: given.driver_memory},
        own_spark=own_spark,
        delta_version=given.delta_version,
        serves_s3=given.s3,
    )


def _serve(given: argparse.Namespace, arguments: SubmitArguments) -> int:
    from airflow_provider_fds.spark.submission.connect_service import running_server, warn_of_open_port

    if (warning := warn_of_open_port(arguments)) is not None:
        print(f"fds connect-server: {warning}", file=sys.stderr, flush=True)
    with running_server(arguments, _to_stderr) as server:
        is_json = given.output == "json"
        print(json.dumps({"url": server.url, "pid": server.pid}) if is_json else server.url, flush=True)
        code = server.wait()
    lines = "\n    ".join(server.last_lines)
    raise ServerLostError(f"the Spark Connect server at {server.url} ended with exit code {code}:\n    {lines}")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to {_LAST_PORT}, got {text!r}")
    return int(text)
