"""A third-party Spark backend: it hands the job to a service, and polls until it has ended."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from airflow_provider_fds.backends.base import Application, ConnectionBackend, Outcome, UserArguments
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.spark.sessions.connect_job import ConnectJob
from airflow_provider_fds.spark.sessions.connect_server import ConnectServer
from airflow_provider_fds.stream.attempt.driver_files import driver_files
from airflow_provider_fds.stream.run.collecting import collecting


class Service:
    """Accepts jobs and runs each in its own thread, on a server that is already running."""

    def __init__(self, url: str) -> None:
        self._server = ConnectServer(url, "the service")

    def accept(self, application: Application) -> threading.Thread:
        """Start a job and return it."""
        files = driver_files(application.session.connected, application.sink)
        job = ConnectJob(self._server, application.spec_uri, files=files, conf={}, tell=print)
        thread = threading.Thread(target=job.work)
        thread.start()
        return thread


@dataclass
class ServiceBackend(ConnectionBackend):
    expects: ClassVar[str] = "its host is that of the service"
    example: ClassVar[str] = "--conn-type service --conn-host HOST --conn-port PORT"

    service: Service
    arguments: UserArguments
    log: Path
    _ran: list[str] = field(default_factory=list)

    @classmethod
    def from_connection(cls, conn_id, connection, arguments, task):
        url = f"sc://{connection.host}:{connection.port}/;user_id=fds"
        return cls(Service(url), arguments, Path(connection.extra_dejson["log"]))

    def check(self):
        if given := self.arguments.for_a_driver():
            raise ConfigurationError(f"{', '.join(given)} cannot be given: the service starts its drivers itself.")

    def run(self, application):
        with collecting(application.session, application.work, application.on_commit):
            self.service.accept(application).join()
        self._ran.append(application.name)
        self.log.write_text("\n".join(self._ran))
        return Outcome()

    def cancel(self):
        """Do nothing: there is nothing to stop."""

    def links(self):
        return {"Job of the service": f"https://service/jobs/{len(self._ran)}"}
