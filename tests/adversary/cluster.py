"""A standalone cluster of Spark of one scenario: a master with its REST server, and workers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark

if TYPE_CHECKING:
    from tests.adversary.scene import Scene

_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: States of a driver that is, or may be, at work.
_AT_WORK: Final = frozenset({"SUBMITTED", "RUNNING", "RELAUNCHING"})
#: Settings of a small driver.
CONF: Final = {
    "spark.cores.max": "1",
    "spark.driver.memory": "600m",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.driver.extraJavaOptions": _QUICK,
}
_STARTED_SECONDS: Final = 180


class Cluster:
    """Two workers with room for one driver and its executor each, and their master."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.folder = scene.root / "cluster"
        self.folder.mkdir()
        self.port, self.rest_port = (_free_port() for _ in range(2))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: set[str] = set()
        self._is_over = threading.Event()
        self._watching = threading.Thread(target=self._watch)
        #: The largest number of drivers that were at work at the same time.
        self.most = 0
        scene.cleanups.append(self._stop)
        self.start_master()
        for number in (1, 2):
            words = ["worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "2", "-m", "2g"]
            self._start(f"worker-{number}", [*words, self.master], "Successfully registered with master")
        self._watching.start()

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def words(self) -> tuple[str, ...]:
        """Return the arguments of a run whose driver this cluster runs."""
        own = {"spark.pyspark.python": sys.executable, "spark.master.rest.port": self.rest_port}
        conf = [word for name, value in {**CONF, **own}.items() for word in ("--conf", f"{name}={value}")]
        return ("--master", self.master, "--deploy-mode", "cluster", *conf)

    def connection(self) -> dict[str, Any]:
        """Return the connection of a task whose driver this cluster runs."""
        extra = {"deploy-mode": "cluster", "rest-port": self.rest_port}
        return {"conn_type": "spark", "host": "spark://127.0.0.1", "port": self.port, "extra": extra}

    def drivers(self) -> set[str]:
        """Return the ids of all drivers that a worker has started."""
        return {folder.name for folder in (self.folder / "work").glob("driver-*")}

    def at_work(self) -> list[str]:
        """Return the drivers that have not ended as far as the master says, or as their processes show; oldest first.

        A master that was started again does not know the drivers that had ended before.
        """
        for driver in self.drivers() - self._ended:
            state = self._state(driver)
            if state not in (*_AT_WORK, None, "UNKNOWN") or (state is None and not self.processes(driver)):
                self._ended.add(driver)
        return sorted(self.drivers() - self._ended)

    def signal_driver(self, driver: str, number: int, which: str) -> int:
        """Send a signal to the processes of a driver: ``python``, ``java`` or ``both``; return how many there are."""
        hit = 0
        for process, is_python in self.processes(driver).items():
            if which == "both" or (which == "python") == is_python:
                with suppress(ProcessLookupError):
                    os.kill(process, number)
                    hit += 1
        self.scene.note(f"{signal.Signals(number).name} to {which} of {driver}: {hit} processes")
        return hit

    def processes(self, driver: str) -> dict[int, bool]:
        """Return the processes of a driver, and whether each is Python's."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").resolve() == self.folder / "work" / driver:
                    found[int(process.name)] = (process / "comm").read_text().startswith("python")
        return found

    def kill_driver(self, driver: str) -> None:
        """Have the master kill a driver, as somebody does in its page."""
        with suppress(OSError, ValueError):
            self.scene.note(f"the master is to kill {driver}: {self._ask('POST', f'kill/{driver}').get('message')}")

    def start_master(self) -> None:
        """Start the master, which finds again what one before it has known."""
        settings = {
            "spark.master.rest.enabled": "true",
            "spark.master.rest.host": "127.0.0.1",
            "spark.master.rest.port": self.rest_port,
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": self.folder / "recovery",
        }
        options = " ".join(f"-D{name}={value}" for name, value in settings.items())
        words = ["master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
        self._start("master", words, "I have been elected leader", SPARK_MASTER_OPTS=options)

    def signal_master(self, number: int) -> None:
        """Send a signal to the master."""
        self.scene.note(f"{signal.Signals(number).name} to the master")
        os.killpg(self._processes["master"].pid, number)

    def _start(self, name: str, words: list[str], sign: str, **environment: str) -> None:
        home = Path(pyspark.__file__).parent
        env = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "SPARK_DAEMON_JAVA_OPTS": _QUICK,
            **environment,
        }
        package, said = "org.apache.spark.deploy", self.folder / f"{name}.log"
        with said.open("wb") as log:
            self._processes[name] = process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), f"{package}.{words[0]}", *words[1:]],
                env=env, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _STARTED_SECONDS
        while not re.search(sign, text := said.read_text("utf-8", "replace")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the {name} did not start: {text[-2000:]}")
            time.sleep(0.1)

    def _watch(self) -> None:
        while not self._is_over.wait(0.3):
            self.most = max(self.most, sum(self._state(driver) in _AT_WORK for driver in self.at_work()))

    def _state(self, driver: str) -> str | None:
        with suppress(OSError, ValueError):
            return self._ask("GET", f"status/{driver}").get("driverState")
        return None

    def _ask(self, method: str, what: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.rest_port}/v1/submissions/{what}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5) as answer:
            return dict(json.load(answer))

    def _stop(self) -> None:
        self._is_over.set()
        if self._watching.is_alive():
            self._watching.join()
        for driver in self.drivers():
            self.signal_driver(driver, signal.SIGKILL, "both")
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
