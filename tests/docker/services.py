"""The services of `docker/compose.yaml`, run from the image by buildah, without a Docker engine.

It does what Compose does with names, addresses, volumes, environment, commands and replicas. All services share the
network of this process, where each has its own address; with Compose each has its own network, unless ``network_mode``
says otherwise.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

from tests.compose import FILE, compose

if TYPE_CHECKING:
    from pathlib import Path

#: The user of the image.
USER = 50000


@dataclass
class Service:
    """A container: one service of the file, or one replica of it."""

    name: str
    #: The name under which others reach it.
    host: str
    settings: dict[str, Any]
    container: str = ""
    process: subprocess.Popen[bytes] | None = None


@dataclass
class Composition:
    """All services that have the project's own image.

    Args:
        image: The image.
        folder: Where volumes and logs are kept.
        secret: The value of FDS_SECRET.
    """

    image: str
    folder: Path
    secret: str
    services: dict[str, Service] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, settings in compose()["services"].items():
            if "build" not in settings:
                continue
            shared = re.fullmatch(r"service:(.+)", settings.get("network_mode", ""))
            replicas = settings.get("deploy", {}).get("replicas", 1)
            for one in [name] if replicas == 1 else [f"{name}-{number}" for number in range(1, replicas + 1)]:
                self.services[one] = Service(one, shared[1] if shared else one, settings)
        hosts = sorted({service.host for service in self.services.values()})
        self.addresses = {host: f"10.89.0.{number}" for number, host in enumerate(hosts, start=2)}
        self.logs = self.folder / "logs"
        self.logs.mkdir()

    def create(self) -> None:
        """Give each service an address and a container."""
        run("ip", "link", "set", "lo", "up")
        for address in self.addresses.values():
            run("ip", "address", "add", f"{address}/32", "dev", "lo")
        hosts = [word for host, address in self.addresses.items() for word in ("--add-host", f"{host}:{address}")]
        for service in self.services.values():
            service.container = run("buildah", "from", "--isolation", "chroot", *hosts, self.image).strip()

    def start(self, name: str) -> None:
        """Start a service with the command of the file; what it says goes to its log."""
        service = self.services[name]
        command = shlex.split(self._interpolated(service.settings["command"]))
        with self.log(name).open("wb") as log:
            service.process = subprocess.Popen(
                self._words(service, command, service.settings.get("environment", {})),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def exec(self, name: str, *command: str, environment: dict[str, str] | None = None, seconds: float = 300) -> str:
        """Run a command in a service's container, with the service's environment, and return what it prints."""
        service = self.services[name]
        return run(
            *self._words(service, command, {**service.settings.get("environment", {}), **(environment or {})}),
            seconds=seconds,
        )

    def log(self, name: str) -> Path:
        """The file into which a service prints."""
        return self.logs / f"{name}.log"

    def said(self, name: str) -> str:
        """Return what a service has printed."""
        return self.log(name).read_text(errors="replace")

    def task_log(self, task_id: str) -> str:
        """Return the end of the logs of a task's attempts."""
        found = sorted((self.volume("airflow") / "logs").rglob(f"task_id={task_id}/*.log"))
        return "\n".join(path.read_text(errors="replace")[-6000:] for path in found)

    def tails(self) -> str:
        """Return the end of each service's log."""
        return "\n".join(f"== {name}\n{self.said(name)[-1500:]}" for name in self.services if self.log(name).exists())

    def stop(self, name: str, seconds: float) -> float:
        """Send SIGTERM to a service's first process, as Compose does, and return the seconds until it has ended.

        Raises:
            subprocess.TimeoutExpired: It did not end within ``seconds``.
        """
        process = self.services[name].process
        began = time.monotonic()
        first = next(
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if not child.cmdline()[0].startswith("buildah")
        )
        first.terminate()
        process.wait(seconds)
        return time.monotonic() - began

    def remove(self) -> None:
        """End what still runs, and remove the containers."""
        for service in self.services.values():
            if service.process is not None and service.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(service.process.pid, signal.SIGKILL)
                service.process.wait()
            if service.container:
                subprocess.run(["buildah", "rm", service.container], capture_output=True, check=False)

    def volume(self, name: str) -> Path:
        """Return the folder of a named volume, which belongs to the user of the image."""
        folder = self.folder / "volumes" / name
        if not folder.exists():
            folder.mkdir(parents=True)
            os.chown(folder, USER, USER)
        return folder

    def _words(self, service: Service, command: tuple[str, ...] | list[str], environment: dict[str, str]) -> list[str]:
        words = ["buildah", "run", "--isolation", "chroot", "--network", "host", "--hostname", service.host]
        for volume in service.settings.get("volumes", []):
            source, target = volume.split(":", 1)
            place = FILE.parent / source if source.startswith(".") else self.volume(source)
            words += ["--volume", f"{place.resolve()}:{target}"]
        for key, value in environment.items():
            words += ["--env", f"{key}={self._interpolated(value)}"]
        return [*words, service.container, "--", *command]

    def _interpolated(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            assert match[1] == "FDS_SECRET", match[0]
            return self.secret

        return re.sub(r"\$\{(\w+)(?::\?[^}]*)?\}", value, text)


def run(*command: str, seconds: float = 120) -> str:
    """Run a command and return its output."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=seconds
    )
    assert done.returncode == 0, (
        f"{command[0]} {command[1]} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    )
    return done.stdout
