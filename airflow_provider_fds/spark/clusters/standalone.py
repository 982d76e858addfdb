"""A standalone cluster: its master starts drivers through its REST server, Python's too, which spark-submit refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow_provider_fds.spark.clusters.cluster import Cluster, ClusterError, Handle, Look
from airflow_provider_fds.spark.clusters.rest import ask

if TYPE_CHECKING:
    from airflow_provider_fds.spark.clusters.cluster import DriverRequest

#: ``spark.master.rest.port``
REST_PORT: Final = 6066

#: What Spark's own client runs for a job in Python.
_PYTHON_RUNNER: Final = "org.apache.spark.deploy.PythonRunner"
#: Where the node has put the driver's file, in its arguments.
_OWN_FILE: Final = "{{USER_JAR}}"
_RUNNING: Final = frozenset({"SUBMITTED", "RUNNING", "RELAUNCHING"})
_SUCCEEDED: Final = "FINISHED"
_ENDED: Final = frozenset({_SUCCEEDED, "FAILED", "KILLED", "ERROR"})


@dataclass(frozen=True)
class StandaloneCluster(Cluster):
    """The masters of a standalone cluster, of which one leads.

    Attributes:
        master: Spark's URL of the masters, ``spark://one:7077,two:7077``.
        rest_port: Port of their REST servers.
    """

    kind: ClassVar[str] = "standalone"

    master: str
    rest_port: int = REST_PORT

    def handle(self, driver: str) -> Handle:
        """Return a driver by its submission id."""
        return Handle(self._addresses[0], driver)

    def start(self, request: DriverRequest) -> Handle:
        """Start a driver, which the cluster does not start again when it ends."""
        conf = {
            "spark.app.name": request.name,
            **request.conf,
            "spark.master": self.master,
            "spark.submit.deployMode": "cluster",
            # a second driver under the same id would work beside the first one's claim
            "spark.driver.supervise": "false",
        }
        body = {
            "action": "CreateSubmissionRequest",
            # compared with the server's only to explain a refusal
            "clientSparkVersion": "",
            "appResource": request.resource,
            "mainClass": _PYTHON_RUNNER,
            "appArgs": [_OWN_FILE, ",".join(request.py_files), *request.arguments],
            # the server refuses a request without any
            "environmentVariables": {"SPARK_ENV_LOADED": "1", **request.env_vars},
            "sparkProperties": conf,
        }
        said: list[str] = []
        for address in self._addresses:
            answer = _ask("POST", f"{address}/v1/submissions/create", body)
            if answer.get("success") and answer.get("submissionId"):
                return Handle(address, str(answer["submissionId"]))
            said.append(f"{address}: {answer.get('message')}")
        raise ClusterError(f"no master starts the driver ({'; '.join(said)})")

    def look(self, handle: Handle) -> Look:
        """Return the state that the leading master has of a driver.

        A master that was started again does not know drivers that had ended before; any master forgets them some day.
        """
        said: list[str] = []
        for address in handle.asked_at(self._addresses):
            try:
                answer = _ask("GET", f"{address}/v1/submissions/status/{handle.id}")
            except ClusterError as error:
                said.append(str(error))
                continue
            state = answer.get("driverState")
            if not answer.get("success") or not isinstance(state, str):
                said.append(f"{address} does not know it: {answer.get('message') or 'no reason given'}")
                continue
            if state in _RUNNING:
                return Look("running", words=state)
            if state not in _ENDED:
                # such as that of a master that recovers, until the worker has registered again
                return Look("unknown", words=state)
            return Look("ended", has_failed=state != _SUCCEEDED, words=_joined(state, answer.get("message")))
        return Look("unknown", words="; ".join(said))

    def stop(self, handle: Handle) -> str | None:
        """Have the driver's process killed."""
        said: list[str] = []
        for address in handle.asked_at(self._addresses):
            try:
                answer = _ask("POST", f"{address}/v1/submissions/kill/{handle.id}")
            except ClusterError as error:
                said.append(str(error))
                continue
            if answer.get("success"):
                return None
            said.append(f"{address}: {answer.get('message')}")
        return "; ".join(said)

    @property
    def _addresses(self) -> tuple[str, ...]:
        hosts = self.master.removeprefix("spark://").split(",")
        return tuple(f"http://{host.rpartition(':')[0] or host}:{self.rest_port}" for host in hosts)


def _ask(method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the answer of a REST server, also that to a request that it refuses.

    Raises:
        ClusterError: There is none.
    """
    # Spark's server wants a charset, and reads a body of POST only
    headers = {"Content-Type": "application/json;charset=UTF-8"}
    return ask(method, url, "the REST server of a standalone master", headers=headers, body=body)[1]


def _joined(state: str, message: object) -> str:
    return f"{state}: {message}" if message else state
