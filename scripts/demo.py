"""``make demo``: a real Airflow loads a Delta table that keeps growing, and every row lands exactly once.

A writer of its own appends 365 days of flights to a table, one commit a day, while the DAG of ``demo_dags/`` loads
what is new through Spark, again and again. At the end both tables are read and compared; the exit code is 0 only if no
row was lost or doubled. Everything lies in ``.demo/``, made anew each time.

Spark is a warm Spark Connect server; with ``BACKEND=submit`` each run starts its own by spark-submit. With
``CATALOG=hive`` the DAG finds the table by its name in a Hive metastore, which is started for it. With ``SERVE=1``
Airflow stays up at the end and the table keeps growing, for a look around: docs/demo.md.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_stack import MARK, AirflowStack, StackError, end_leftovers, readable_log
from demo_progress import DemoProgress
from demo_verdict import judge
from demo_writer import DAYS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from demo_progress import Progress

ROOT: Final = Path(__file__).resolve().parent.parent
DAG_ID: Final = "flights_to_bronze"
MONITOR_ID: Final = "fds_monitor"
#: Days that the table has before Airflow looks at it first: the stream begins with a snapshot of them.
DAYS_AT_START: Final = 31
#: Over how many seconds the rest is committed.
FEED_SECONDS: Final = 100
#: How long after the last commit the sink may take to have everything.
DRAIN_SECONDS: Final = 300
#: With ``SERVE=1``: seconds between two commits after that.
SERVE_SECONDS: Final = 2

#: How Spark is started, by the value of ``BACKEND``.
BACKENDS: Final = ("connect", "submit")
#: Where the DAG finds the table, by the value of ``CATALOG``.
CATALOGS: Final = ("", "hive")
#: Name of the table in the catalog.
TABLE: Final = "lab.flights"

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """Somebody wants the demo to end: Ctrl-C, SIGTERM, or the terminal was closed."""


class DemoError(Exception):
    """The demo did not reach its end; the message is for people."""


@dataclass(frozen=True)
class Places:
    """Where the demo keeps its things."""

    home: Path

    @property
    def airflow(self) -> Path:
        """AIRFLOW_HOME."""
        return self.home / "airflow"

    @property
    def connect(self) -> Path:
        """Files of the Spark Connect server."""
        return self.home / "connect"

    @property
    def metastore(self) -> Path:
        """Files of the Hive metastore."""
        return self.home / "metastore"

    @property
    def source(self) -> Path:
        """The table that grows."""
        return self.home / "lake" / "flights"

    @property
    def sink(self) -> Path:
        """The table that FDS writes."""
        return self.home / "lake" / "bronze_flights"

    @property
    def staging(self) -> Path:
        """Ledger and manifests."""
        return self.home / "staging"

    @property
    def warm_up(self) -> Path:
        """What the Spark Connect server loads before the demo begins."""
        return self.home / "warm_up"

    @property
    def alerts(self) -> Path:
        """The alerts that the DAGs have sent, one JSON object a line."""
        return self.home / "alerts.jsonl"


def main() -> int:
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    places = Places(ROOT / ".demo")
    try:
        with _alone(places.home):
            return _run(places)
    except Interrupted as why:
        print(f"\nstopped ({why}); nothing is left running")
        return 130
    except (DemoError, StackError, RuntimeError) as error:
        print(f"\nDEMO FAILED: {error}", file=sys.stderr)
        return 1


def _run(places: Places) -> int:
    backend = os.environ.get("BACKEND") or BACKENDS[0]
    if backend not in BACKENDS:
        raise DemoError(f"BACKEND is {backend!r}; it must be one of {', '.join(BACKENDS)}")
    catalog = os.environ.get("CATALOG", "")
    if catalog not in CATALOGS:
        raise DemoError(f"CATALOG is {catalog!r}; it must be 'hive', or not set")
    _say(f"a new demo in {places.home}")
    end_leftovers(places.airflow)
    for folder in (
        *(places.airflow, places.connect, places.metastore, places.source.parent, places.staging, places.warm_up),
    ):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    places.alerts.write_text("")
    _say(f"writing the first {DAYS_AT_START} days of flights, one commit a day")
    with _writer(places, "--first", 1, "--last", DAYS_AT_START) as writer:
        if writer.wait(timeout=300) != 0:
            raise DemoError("the writer failed, see above")
    stack = AirflowStack(places.airflow, ROOT / "scripts" / "demo_dags", env=_environment(places))
    with _catalog(catalog, places, stack), _spark(backend, places, stack) as spark:
        stack.env["AIRFLOW_CONN_SPARK_DEFAULT"] = spark.connection
        return _load(places, stack, spark)


def _load(places: Places, stack: AirflowStack, spark: Spark) -> int:
    _say("starting Airflow: API server, scheduler, dag-processor, triggerer")
    with stack, _deaf_at_end():
        _say(f"Airflow is up: {stack.url}/dags/{DAG_ID}")
        stack.wait(lambda: _is_parsed(stack), 60, f"the DAG {DAG_ID} was not found")
        spark.wait_until_warm()
        progress = DemoProgress(places.source, places.sink, places.staging / DAG_ID / "ledger")
        for dag_id in (MONITOR_ID, DAG_ID):
            stack.client.unpause(dag_id)
        _say("the stream begins with a snapshot of the table")
        _follow(stack, progress, None)
        _say(f"writing the other {DAYS - DAYS_AT_START} days over {FEED_SECONDS} s while the DAG runs")
        with _writer(places, "--first", DAYS_AT_START + 1, "--last", DAYS, "--seconds", FEED_SECONDS) as writer:
            most_lag = _follow(stack, progress, writer)
        stack.wait(lambda: _is_waiting(stack), 120, "the next run did not wait for more")
        _say("nothing new: the next run waits in the triggerer, and holds no worker")
        verdict = judge(places.source, places.sink, places.staging / DAG_ID / "ledger", "flight_id")
        print("\n" + "\n".join(verdict.lines))
        print(f"lag of at most {most_lag:.1f} s while the table grew")
        runs = sum(run["state"] == "success" for run in stack.client.runs(DAG_ID))
        print(f"{runs} runs of the DAG in {_elapsed():.0f} s, to be seen at {stack.url}/dags/{DAG_ID}", flush=True)
        if os.environ.get("SERVE", "0") not in ("", "0"):
            with suppress(Interrupted):
                _serve(places, stack)
    return 1 if verdict.problems else 0


def _serve(places: Places, stack: AirflowStack) -> None:
    """Let the table grow, and print the alerts, until somebody ends it."""
    print(
        f"""
Airflow stays up until Ctrl-C, because of SERVE=1, and the table gets a commit every {SERVE_SECONDS} s.
Open {stack.url} and look around. To see the stream stop at a DELETE, run in another terminal:
    .venv/bin/python scripts/demo_writer.py {places.source.relative_to(ROOT)} --delete "flight_id < 100"
""",
        flush=True,
    )
    with _writer(places, "--first", DAYS + 1, "--every", SERVE_SECONDS) as writer, places.alerts.open() as alerts:
        while True:
            if writer.poll() is not None:
                raise DemoError(f"the writer ended with {writer.returncode}, see above")
            for line in alerts:
                alert = json.loads(line)
                _say(f"ALERT: {alert['title']}\n        {alert['why']}\n        {alert['action']}")
            time.sleep(0.5)


def _follow(stack: AirflowStack, progress: DemoProgress, writer: subprocess.Popen[bytes] | None) -> float:
    """Print the progress until the stream has all that the writer wrote, and return the largest lag in seconds.

    Args:
        stack: The running Airflow.
        progress: What to look at.
        writer: Makes the table grow; ``None``: nothing does.
    """
    deadline = time.monotonic() + FEED_SECONDS + DRAIN_SECONDS
    said: Progress | None = None
    said_at = most_lag = 0.0
    while True:
        is_written = writer is None or writer.poll() is not None
        if writer is not None and writer.returncode:
            raise DemoError(f"the writer ended with {writer.returncode}, see above")
        now = progress.look()
        most_lag = max(most_lag, now.lag_seconds)
        is_news = said is None or now.committed_version != said.committed_version
        if is_news or time.monotonic() - said_at > 5:
            said, said_at = now, time.monotonic()
            _say(now.describe())
            _stop_at_failure(stack)
        if is_written and now.versions_behind == 0:
            return most_lag
        if time.monotonic() > deadline:
            raise DemoError(
                f"the sink did not catch up in time: {now.describe()}; the logs are in {stack.home / 'logs'}"
            )
        time.sleep(0.5)


def _stop_at_failure(stack: AirflowStack) -> None:
    stack.is_healthy()
    for run in stack.client.runs(DAG_ID):
        if run["state"] == "failed":
            for task_id, task in stack.client.tasks(DAG_ID, run["dag_run_id"]).items():
                if task["state"] == "failed":
                    log = stack.task_log(DAG_ID, run["dag_run_id"], task_id, task["try_number"])
                    raise DemoError(f"task {task_id} of {run['dag_run_id']} failed:\n{readable_log(log)}\n\n({log})")


def _is_parsed(stack: AirflowStack) -> bool:
    if errors := stack.client.import_errors():
        raise DemoError(f"the DAG file cannot be read:\n{errors[0]}")
    return stack.client.has_dag(DAG_ID)


def _is_waiting(stack: AirflowStack) -> bool:
    run = stack.client.runs(DAG_ID)[0]
    state: object = stack.client.tasks(DAG_ID, run["dag_run_id"])["ingest"]["state"]
    return state == "deferred"


@dataclass(frozen=True)
class Spark:
    """Where the DAG's batches run.

    Attributes:
        connection: The Airflow connection, as JSON.
        warm_up: The process that loads something else first; ``None``: nothing stays warm.
    """

    connection: str
    warm_up: subprocess.Popen[bytes] | None = None

    def wait_until_warm(self) -> None:
        """Return when the warm-up is over, or after two minutes: on a busy machine the demo begins without it."""
        if self.warm_up is None:
            return
        try:
            code = self.warm_up.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.warm_up.kill()
            _say("the Spark Connect server is still cold, so the first batches take longer")
            return
        if code != 0:
            raise DemoError(f"the Spark Connect server did not load its first table (exit code {code})")


@contextmanager
def _catalog(kind: str, places: Places, stack: AirflowStack) -> Iterator[None]:
    """Start the catalog, if there is to be one, and let it know the table."""
    if not kind:
        yield
        return
    # the tests start it in the same way
    sys.path.insert(0, str(ROOT))
    from tests.interop.catalog.metastore import metastore_program, register

    _say(f"starting a Hive metastore, which knows the table as {TABLE}")
    os.environ[MARK] = stack.mark
    with metastore_program(places.metastore) as program:
        port = int(program.receive("port"))
        register(f"thrift://127.0.0.1:{port}", TABLE, places.source.as_uri())
        connection = {"conn_type": "fds_hive", "host": "127.0.0.1", "port": port}
        stack.env |= {
            "AIRFLOW_CONN_DEMO_CATALOG": json.dumps(connection),
            "FDS_DEMO_CATALOG": "demo_catalog",
            "FDS_DEMO_SOURCE": TABLE,
        }
        yield


@contextmanager
def _spark(backend: str, places: Places, stack: AirflowStack) -> Iterator[Spark]:
    """Start what the backend needs before the first run."""
    if backend == "submit":
        yield Spark(json.dumps({"conn_type": "spark", "host": "local[2]"}))
        return
    # the tests start it in the same way
    sys.path.insert(0, str(ROOT))
    from tests.interop.connect_server import running_server

    _say("starting a Spark Connect server, which stays warm between runs")
    # if this process is killed, the next demo ends the server with the rest of the stack
    os.environ[MARK] = stack.mark
    with running_server(places.connect) as server, _warm_up(places, server.url) as warm_up:
        connection = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": server.port}
        yield Spark(json.dumps(connection), warm_up)


@contextmanager
def _warm_up(places: Places, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Load the table into another sink: the first batches after the server's start take some seconds longer."""
    home = places.warm_up
    command = [sys.executable, "-m", "airflow_provider_fds.cli.main", "run", str(places.source), "--stream", "warm_up"]
    command += ["--staging", str(home / "staging"), "--checkpoint", str(home / "checkpoint.json")]
    command += ["--sink", str(home / "sink"), "--remote", url, "--option", "max_files_per_batch=8"]
    with (home / "output.log").open("wb") as output:
        process = subprocess.Popen(command, start_new_session=True, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _environment(places: Places) -> dict[str, str]:
    return {
        # a run that starts before the API server answers would fail
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        "AIRFLOW__FDS__STAGING": str(places.staging),
        "FDS_DEMO_SOURCE": str(places.source),
        "FDS_DEMO_SINK": str(places.sink),
        "FDS_DEMO_ALERTS": str(places.alerts),
    }


@contextmanager
def _writer(places: Places, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(ROOT / "scripts" / "demo_writer.py"), str(places.source)]
    command += [str(argument) for argument in arguments]
    # a session of its own: Ctrl-C reaches this process alone, which then ends the writer
    writer = subprocess.Popen(command, start_new_session=True)
    try:
        yield writer
    finally:
        writer.kill()
        writer.wait()


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Hold the folder's lock: two demos in one folder would write the same tables."""
    home.mkdir(exist_ok=True)
    with (home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError("another demo runs in this folder; end it with Ctrl-C in its terminal") from None
        yield


@contextmanager
def _deaf_at_end() -> Iterator[None]:
    """Ignore signals once the block is left: an impatient Ctrl-C must not leave a process behind."""
    try:
        yield
    finally:
        _ignore_signals()
        _say("stopping Airflow")


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _ignore_signals()
    raise Interrupted(signal.Signals(number).name)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


_BEGIN: Final = time.monotonic()


def _elapsed() -> float:
    return time.monotonic() - _BEGIN


def _say(text: str) -> None:
    print(f"{_elapsed():4.0f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
