"""A driver that a cluster runs: its files in staging, its settings, and the wait for its end."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.backends.staged_files import ship
from airflow_provider_fds.credentials import is_secret, redacted
from airflow_provider_fds.errors import ClusterLostError, ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.clusters.cluster import LOST_SECONDS, ClusterError, DriverRequest, Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_fds.backends.base import Application, UserArguments
    from airflow_provider_fds.backends.fleet_application import FleetApplication
    from airflow_provider_fds.ledger.facts import SubmittedFacts
    from airflow_provider_fds.spark.clusters.cluster import Cluster, Look
    from airflow_provider_fds.spark.submission.submit import SubmitArguments

logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 2.0
#: The longest time between two looks at a driver whose state the cluster does not tell; each is twice the one before.
_LONGEST_PAUSE: Final = 15.0

#: Arguments of spark-submit -> the settings that they stand for.
_SETTINGS: Final = {
    "driver_memory": "spark.driver.memory",
    "executor_memory": "spark.executor.memory",
    "executor_cores": "spark.executor.cores",
    "total_executor_cores": "spark.cores.max",
    "num_executors": "spark.executor.instances",
    "files": "spark.files",
    "archives": "spark.archives",
    "repositories": "spark.jars.repositories",
    "exclude_packages": "spark.jars.excludes",
}
#: What only spark-submit can do.
_OF_SPARK_SUBMIT: Final = ("properties_file", "keytab", "principal", "proxy_user", "yarn_queue")


#: Streams of a fleet that a message names.
_MOST_NAMES: Final = 8


class DriverEndedError(Exception):
    """The cluster says that the driver did not succeed."""


def request_problems(master: str, given: UserArguments) -> list[str]:
    """Return what a driver that the cluster starts by itself cannot be given, one sentence each."""
    problems = []
    if names := [name for name in _OF_SPARK_SUBMIT if getattr(given, name)]:
        problems.append(
            f"{', '.join(names)} cannot be given with deploy_mode 'cluster' on {master}: its REST server starts the "
            "driver, not spark-submit"
        )
    secret = [f"conf has {name}" for name, value in given.conf.items() if is_secret(name, str(value))]
    secret += [f"env_vars has {name}" for name, value in given.env_vars.items() if is_secret(name, str(value))]
    return problems + [_is_visible(master, what) for what in sorted(secret)]


def _is_visible(master: str, what: str) -> str:
    return (
        f"{what}: on {master}, a driver in the cluster gets settings and variables as text that every user of its "
        "nodes can read. Give the nodes their own credentials, in their spark-defaults.conf, or use deploy_mode "
        "'client'"
    )


@dataclass
class ClusterDriver:
    """Starts the driver of one application after the other in a cluster, and waits for it.

    Attributes:
        cluster: The cluster.
        master: Its address, for messages.
        poll_seconds: Time between two looks at the driver.
        lost_seconds: How long the cluster may not answer.
        request: Makes the request for an application; default: one whose files are in staging.
    """

    cluster: Cluster
    master: str
    poll_seconds: float = _POLL_SECONDS
    lost_seconds: float = LOST_SECONDS
    request: Callable[[Application | FleetApplication, SubmitArguments, UserArguments], DriverRequest] | None = None
    #: The page with the log of the last driver, once it is known.
    log_url: str | None = field(default=None, init=False)
    _handle: Handle | None = field(default=None, init=False, repr=False)
    _is_stopped: threading.Event = field(default_factory=threading.Event, init=False, repr=False)

    def run(
        self,
        application: Application | FleetApplication,
        made: SubmitArguments,
        given: UserArguments,
        was_ended: threading.Event,
    ) -> Exception | None:
        """Run the driver, and return how it failed, ``None`` if it did not.

        Args:
            application: What it works on.
            made: The arguments that spark-submit would get.
            given: The user's arguments among them.
            was_ended: Set if the driver was stopped because all that it had to do is done.

        Raises:
            ConfigurationError: The job needs a secret.
            ClusterLostError: The cluster does not start the driver, or does not answer for too long. A driver that goes
                on harms nothing: the next attempt finds in the sink what it has written.
        """
        return self._waited(application, self.start(application, made, given), was_ended)

    def start(self, application: Application | FleetApplication, made: SubmitArguments, given: UserArguments) -> Handle:
        """Start the driver and let the ledger have it; arguments and errors as for :meth:`run`."""
        make = self.request or _request
        try:
            self._handle = handle = self.cluster.start(make(application, made, given))
        except ClusterError as error:
            raise ClusterLostError(str(error), error_class=Reason.SPARK_CLUSTER_LOST) from error
        logger.info("Driver %s has been started on %s.", handle.id, self.master)
        try:
            self.record(application)
        except BaseException:
            # no attempt would find it
            self.stop()
            raise
        return handle

    def attach(
        self, application: Application | FleetApplication, left: SubmittedFacts, was_ended: threading.Event
    ) -> Exception | None:
        """Wait for a driver that was left; otherwise as :meth:`run`."""
        self._handle = handle = Handle(left.address, left.driver)
        logger.info(
            "Driver %s was started before, for the same batches. No other one is started: this attempt commits what it "
            "reports.",
            handle.id,
        )
        return self._waited(application, handle, was_ended)

    def look(self, application: Application | FleetApplication, left: SubmittedFacts) -> Look:
        """Return what the cluster says of a driver that was left; from now on :meth:`stop` stops it."""
        self._handle = handle = Handle(left.address, left.driver)
        look = self.cluster.look(handle)
        self._find_log(application)
        return look

    def working(self, driver: str) -> Handle | None:
        """Return the driver of that name if the cluster says that it works, and it is not one that this process has."""
        handle = self.cluster.handle(driver)
        if self._handle is not None and self._handle.id == driver:
            return None
        return handle if self.cluster.look(handle).state == "running" else None

    def record(self, application: Application | FleetApplication) -> None:
        """Let the ledger have the driver that runs, so that a later attempt on the same batches finds it.

        Raises:
            LedgerError: The batches belong to another run by now.
        """
        handle = self._handle
        if handle is not None:
            application.record(cluster=self.cluster.kind, address=handle.cluster, driver=handle.id)

    def stop(self) -> None:
        """Stop the driver; may be called in a signal handler, and before it has been started."""
        handle = self._handle
        if handle is None:
            self._is_stopped.set()
        elif (said := self.cluster.stop(handle)) is not None:
            logger.warning("Driver %s could not be stopped: %s", handle.id, said)

    def _waited(
        self, application: Application | FleetApplication, handle: Handle, was_ended: threading.Event
    ) -> Exception | None:
        self.log_url = None
        if self._is_stopped.is_set():
            self.stop()
        try:
            return self._end(application, handle, was_ended)
        except BaseException as ending:
            # a person ends the process, or the task's time is over: Airflow calls on_kill only after this has ended
            if not isinstance(ending, Exception):
                self.stop()
            raise
        finally:
            self._handle = None

    def _end(
        self, application: Application | FleetApplication, handle: Handle, was_ended: threading.Event
    ) -> Exception | None:
        lost_since: float | None = None
        pause, words = self.poll_seconds, ""
        while True:
            look = self.cluster.look(handle)
            if look.state == "unknown" and was_ended.is_set():
                # everything is committed, whatever became of the driver
                return None
            if look.state == "unknown":
                now = time.monotonic()
                lost_since = lost_since or now
                pause = min(2 * pause, max(_LONGEST_PAUSE, self.poll_seconds))
                if now - lost_since >= self.lost_seconds:
                    raise self.lost(application, handle.id, look)
            else:
                lost_since, pause = None, self.poll_seconds
            self._find_log(application)
            if look.state == "running" and look.words not in ("", words):
                # such as why it does not start
                words = look.words
                logger.info("Driver %s: %s", handle.id, redacted(words))
            if look.state == "ended":
                if not look.has_failed or was_ended.is_set():
                    return None
                page = f"; its log: {self.log_url}" if self.log_url else ""
                self._tell_last_lines(handle, look)
                return DriverEndedError(f"driver {handle.id} on {self.master} ended: {look.words}{page}")
            time.sleep(pause)

    def lost(self, application: Application | FleetApplication, driver: str, look: Look) -> ClusterLostError:
        """Return the error of an attempt whose driver the cluster has not known for :attr:`lost_seconds`."""
        return ClusterLostError(
            f"{self.master} has not told the state of driver {driver} for {self.lost_seconds:.0f} s "
            f"({look.words}). {_advice(application)}",
            error_class=Reason.SPARK_CLUSTER_LOST,
        )

    def _find_log(self, application: Application | FleetApplication) -> None:
        """Tell the page with the driver's log once the cluster knows it, or the driver has reported it."""
        if self.log_url is not None or self._handle is None:
            return
        page = self.cluster.log_page(self._handle)
        url = _reported_page(application) if page is None else page
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            self.log_url = url
            logger.info("Log of the driver: %s", url)

    def _tell_last_lines(self, handle: Handle, look: Look) -> None:
        if lines := self.cluster.last_lines(handle):
            logger.error("Driver %s ended: %s. The last lines of its log:", handle.id, redacted(look.words))
            for line in lines:
                logger.info("%s", redacted(line))


def _reported_page(application: Application | FleetApplication) -> object:
    try:
        data, _ = application.staging.get(application.begun_key)
        return json.loads(data).get("log_url")
    except Exception:  # noqa: BLE001 - a link is no reason to fail
        return None


def _advice(application: Application | FleetApplication) -> str:
    if not application.streams:
        return "If the driver goes on, the next attempt finds what it has written"
    first, *others = application.streams
    like = f", and the same for {_named(others)}," if others else ""
    return (
        "The next attempt asks for this driver again, and starts no other one beside it. If it is known to have ended, "
        f"`fds unlock {first} --why …`{like} lets the next run start another one"
    )


def _named(streams: Sequence[str]) -> str:
    shown = ", ".join(streams[:_MOST_NAMES])
    return f"{shown} and {len(streams) - _MOST_NAMES} more streams" if len(streams) > _MOST_NAMES else shown


def _request(application: Application | FleetApplication, made: SubmitArguments, given: UserArguments) -> DriverRequest:
    """Return the request for an application, whose files it puts into staging.

    Raises:
        ConfigurationError: It would show a secret.
        StorageError: Staging cannot be written.
    """
    conf = _conf(made, given)
    secret = sorted({*made.secret_conf, *(name for name, value in conf.items() if is_secret(name, value))})
    if secret:
        raise ConfigurationError(
            _is_visible(made.master, f"the job needs {', '.join(secret)}"), reason=Reason.SPARK_UNUSABLE
        )
    staging = application.staging
    if made.jars:
        conf["spark.jars"] = ",".join(ship(staging, jar) for jar in made.jars.split(","))
    *modules, own = made.py_files.split(",")
    return DriverRequest(
        name=conf.get("spark.app.name", application.name),
        resource=ship(staging, own),
        arguments=made.application_args,
        conf=conf,
        env_vars={name: str(value) for name, value in made.env_vars.items()},
        py_files=tuple(modules),
    )


def _conf(made: SubmitArguments, given: UserArguments) -> dict[str, str]:
    conf = {name: str(value) for name, value in made.conf.items()}
    own: Mapping[str, object] = vars(given)
    conf |= {setting: str(own[name]) for name, setting in _SETTINGS.items() if own[name]}
    if made.driver_class_path:
        conf["spark.driver.extraClassPath"] = made.driver_class_path
    return conf
