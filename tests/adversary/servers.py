"""Spark Connect servers, started once for many scenarios: one with this machine's clock, others with a later one.

libfaketime sets the later clocks, so that what Delta keeps for a day or a month really expires.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

#: Where ``scripts/test_programs.sh`` unpacks it.
_UNPACKED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fds-tests/programs/faketime.files"
#: Debian's path of the library; other places are checked too.
_FAKETIME: Final = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
    "/usr/local/lib/faketime/libfaketime.so.1",
    *map(str, _UNPACKED.glob("usr/lib/*/faketime/libfaketime.so.1")),
)


#: Without it, a server writes some megabytes of INFO, each request with its plan.
_LOGGING: Final = """
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def faketime_library() -> str | None:
    """Return the path of libfaketime, or ``None`` if it is not installed."""
    return next((path for path in _FAKETIME if Path(path).exists()), None)


def clock(shift: str) -> dict[str, str]:
    """Return the environment of a process whose clock is later by ``shift``, such as ``+25h``."""
    library = faketime_library()
    if not shift:
        return {}
    if library is None:
        raise RuntimeError("libfaketime is not installed")
    return {
        "LD_PRELOAD": library,
        "FAKETIME": shift,
        # waits use the monotonic clock, without which a JVM busy-waits; the times of files stay real
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "NO_FAKE_STAT": "1",
    }


def delta_jars() -> str:
    """Return Delta's JARs, comma separated, as ``fds admin prepare`` names them."""
    said = subprocess.run(
        [sys.executable, "-m", "airflow_provider_fds.cli.main", "admin", "prepare"],
        capture_output=True,
        text=True,
        check=True,
    )
    return next(line for line in said.stdout.splitlines() if line.startswith("JARs: "))[6:].replace(":", ",")


@dataclass
class Server:
    """A Connect server in its own process group."""

    folder: Path
    shift: str = ""
    #: Whether frequently run code is compiled well, which takes minutes.
    is_lasting: bool = False
    #: What starts it, such as a program that gives it mounts of its own.
    prefix: tuple[str, ...] = ()
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def start(self, jars: str, **conf: str) -> None:
        """Start it, and wait until it listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        logging = self.folder / "log4j2.properties"
        logging.write_text(_LOGGING)
        home = Path(pyspark.__file__).parent
        # hundreds of scenarios leave tables, plans and sessions in memory
        heap = 6000 if self.is_lasting else 1500
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            # makes thousands of tiny queries fast: nothing is compiled, nothing is planned again
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.ui.explainMode": "simple",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.databricks.delta.delta.log.cacheSize": "60",
            # the default one starts two processes for each `.crc` file
            "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
            "FileSystemBasedCheckpointFileManager",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.sql.ui.retainedExecutions": "10",
            "spark.ui.retainedJobs": "10",
            "spark.ui.retainedStages": "10",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.local.dir": str(self.folder / "local"),
            # full size from the start: a heap and a metaspace that grow are collected at each step, and the quick
            # compiler has 48 MB for code, which Spark fills within minutes
            "spark.driver.extraJavaOptions": f"{'' if self.is_lasting else '-XX:TieredStopAtLevel=1 '}-XX:+UseSerialGC "
            "-Djdk.lang.Process.launchMechanism=VFORK "
            f"-Xms{heap}m -Xmn500m -XX:MetaspaceSize=400m -XX:ReservedCodeCacheSize=256m "
            f"-Dlog4j2.configurationFile={logging.as_uri()} -Dderby.system.home={self.folder}",
            **conf,
        }
        words = [
            *self.prefix,
            str(home / "bin" / "spark-submit"),
            "--master",
            "local[2]",
            "--driver-memory",
            f"{heap}m",
            "--jars",
            jars,
        ]
        for key, value in settings.items():
            words += ["--conf", f"{key}={value}"]
        words += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        env = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", **clock(self.shift)}
        with (self.folder / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                words, env=env, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._await()

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)
            self.process = None
            shutil.rmtree(self.folder / "local", ignore_errors=True)

    def _await(self) -> None:
        pause = threading.Event()
        assert self.process is not None
        for _ in range(1800):
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended:\n{(self.folder / 'server.log').read_text()[-3000:]}")
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            pause.wait(0.1)
        raise RuntimeError(
            f"the server did not listen within 180 s:\n{(self.folder / 'server.log').read_text()[-3000:]}"
        )


class Servers:
    """Servers by their clock, each started when it is first requested."""

    def __init__(self, folder: Path, *, are_lasting: bool = False) -> None:
        self._folder = folder
        self._are_lasting = are_lasting
        self._lock = threading.Lock()
        self._servers: dict[str, Server] = {}
        self._jars: str | None = None

    def get(self, shift: str = "") -> Server:
        with self._lock:
            found = self._servers.get(shift)
            if found is not None and found.process is not None and found.process.poll() is None:
                return found
            found = Server(
                self._folder / f"server{shift or '+0'}-{len(self._servers)}", shift, self._are_lasting and not shift
            )
            found.start(self.jars())
            self._servers[shift] = found
            return found

    def jars(self) -> str:
        """Return Delta's JARs."""
        if self._jars is None:
            self._jars = delta_jars()
        return self._jars

    def stop(self) -> None:
        for server in self._servers.values():
            server.stop()
