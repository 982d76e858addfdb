"""Runs the job by spark-submit, as a child of this process. Does not import pyspark."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.installation.install import child_environment, java_problem
from airflow_provider_fds.spark.submission.submit import SubmitArguments, submission, submit_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from airflow_provider_fds.spark.installation.own_spark import OwnSpark
    from airflow_provider_fds.spark.submission.object_store import JobStorage

_LOG = logging.getLogger(__name__)

_TAIL_LINES: Final = 60
_GRACE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05

#: Exit codes with which the job itself reports its outcome (``job.py``).
SAID_BY_THE_JOB: Final = frozenset({0, 10, 11, 12})

#: Printed at every start on a healthy machine.
_NOISE: Final = re.compile(
    r"WARNING: Using incubator modules|PySpark does not yet fully support pandas|"
    r"WARN Utils: (?:Your hostname|Set SPARK_LOCAL_IP)|^\s*warnings\.warn\(|^\s*$"
)
#: What Spark prints for each JAR of the user's packages that it fetches before it starts.
_FETCHING: Final = re.compile(r"^downloading \S+")
_LEVEL: Final = re.compile(r"^\d\d:\d\d:\d\d (?P<level>WARN|ERROR|FATAL) ")


def run_locally(
    spec_uri: str,
    master: str = "local[2]",
    conf: Mapping[str, Any] | None = None,
    cache_dir: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    on_start: Callable[[Callable[[], None]], object] | None = None,
    storage: JobStorage | None = None,
    num_bytes: int = 0,
    own_spark: OwnSpark | None = None,
    delta_version: str | None = None,
) -> int:
    """Run the job in client mode with the bundled Spark or the user's own, wait for it, and return its exit code.

    Lines of the application (``FDS …``), errors, and the names of JARs that are fetched go to ``on_line`` (default:
    this module's logger) as they arrive. Everything else is held back; its last lines follow if the job ended without
    reporting an outcome. Whatever ends the wait, including Ctrl-C, first ends spark-submit, its JVM and its Python
    workers.

    Args:
        spec_uri: URI of the job spec.
        master: Spark master; unless it is local, the cluster must be able to reach this machine.
        conf: The user's Spark settings.
        cache_dir: For JARs and zip; default :func:`~airflow_provider_fds.spark.installation.cache.default_cache_dir`.
        on_line: Called with each line, without its line end.
        on_start: Called with a function that ends spark-submit, from any thread.
        storage: Where the job reads and writes, for Spark's S3 settings.
        num_bytes: Planned bytes of all its batches.
        own_spark: The user's Spark; ``None``: the bundled one.
        delta_version: See :func:`~airflow_provider_fds.spark.submission.submit.submit_arguments`.

    Raises:
        SparkSetupError: Spark cannot start here, or ``conf`` contradicts a forced setting.
    """
    if own_spark is None and (problem := java_problem()):
        raise SparkSetupError(problem)
    arguments = submit_arguments(
        spec_uri,
        master=master,
        conf=conf,
        cache_dir=cache_dir,
        own_spark=own_spark,
        delta_version=delta_version,
        storage=storage,
        num_bytes=num_bytes,
    )
    with submission(arguments, cache_dir) as submitted:
        return run_submission(submitted, on_line, on_start)


def run_submission(
    arguments: SubmitArguments,
    on_line: Callable[[str], None] | None,
    on_start: Callable[[Callable[[], None]], object] | None = None,
) -> int:
    """Run spark-submit, wait for it, and return its exit code; otherwise as :func:`run_locally`."""
    tell = on_line if on_line is not None else _log
    held_back: deque[str] = deque(maxlen=_TAIL_LINES)
    reach("submit.before")
    process = started(arguments)
    try:
        end_group_with(process)
        if on_start is not None:
            on_start(lambda: end_group(process))
        assert process.stdout is not None  # noqa: S101 - it was asked for
        for raw in process.stdout:
            line = raw.rstrip("\n")
            if _NOISE.search(line):
                continue
            if line.startswith("FDS ") or _LEVEL.match(line):
                tell(line)
            elif _FETCHING.match(line):
                tell(f"Spark is fetching {redacted(line.removeprefix('downloading ').removesuffix(' ...'))}")
            else:
                held_back.append(line)
        code = process.wait()
    finally:
        if process.stdout is not None:
            process.stdout.close()
        end_group(process)
        process.wait()
    reach("submit.after")
    if code not in SAID_BY_THE_JOB:
        for line in held_back:
            tell(line)
    return code


def started(arguments: SubmitArguments, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start spark-submit as the leader of a process group; its output can be read as one stream of text.

    Args:
        arguments: What it is started with.
        cwd: Its working directory; default: that of this process.

    Raises:
        OSError: It cannot be run.
    """
    return subprocess.Popen(  # noqa: S603
        arguments.command(),
        env={**child_environment(), **arguments.env_vars},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _log(line: str) -> None:
    level = _LEVEL.match(line)
    _LOG.log(logging.INFO if level is None else getattr(logging, level["level"].replace("WARN", "WARNING")), "%s", line)


def end_group(process: subprocess.Popen[Any], seconds: float = _GRACE_SECONDS) -> None:
    """End a process that leads a process group, and what is left of the group: SIGTERM first, then SIGKILL.

    Spark's Python driver is a child of the JVM, and outlives it.

    Args:
        process: The leader; it may have ended.
        seconds: Time between the two signals.
    """
    for sign, wait in ((signal.SIGTERM, seconds), (signal.SIGKILL, 0.0)):
        if not _signal_group(process.pid, sign):
            return
        until = time.monotonic() + wait
        while time.monotonic() < until:
            process.poll()
            if not _signal_group(process.pid, 0):
                return
            time.sleep(_POLL_SECONDS)


def end_group_with(process: subprocess.Popen[Any], seconds: float = _GRACE_SECONDS) -> None:
    """Let the process group of a process end when its leader does, whatever ends that.

    The rest of the group would also hold the leader's output open, so that whoever reads it would wait for ever.
    """

    def watch() -> None:
        with suppress(ChildProcessError):
            # the caller still gets the exit code
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        end_group(process, seconds)

    threading.Thread(target=watch, name="fds-process-group", daemon=True).start()


def _signal_group(group: int, sign: int) -> bool:
    """Send a signal to a process group, 0: none; return whether it has processes."""
    try:
        os.killpg(group, sign)
    except (ProcessLookupError, PermissionError):
        return False
    return True
