"""Delta's own access to S3: Hadoop's S3A against an S3 server on loopback, in as many JVMs as a test has drivers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from airflow_provider_fds.spark.installation.install import bundled_spark_home
from airflow_provider_fds.spark.installation.jars import delta_jars, s3a_jars
from airflow_provider_fds.spark.submission.object_store import log_store_jar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.s3_server import Server

HERE = Path(__file__).parent

#: The most that any test needs.
DRIVERS = 4


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("FDS_S3") == "1":
        return
    skipped = pytest.mark.skip(reason="Spark's S3 file system is a large download, so only `make s3` has it")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skipped)


class Driver:
    """A separate JVM with Delta's storage, S3A and FDS's log store; no Spark."""

    def __init__(self) -> None:
        jars = [*s3a_jars(), log_store_jar(), delta_jars()[1], bundled_spark_home() / "jars" / "*"]
        # after Spark's own: these use another SDK, with another Jackson
        jars += filter(None, os.environ.get("FDS_DYNAMODB_JARS", "").split(":"))
        java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", ":".join(map(str, jars))]
        self._process = subprocess.Popen(
            [*java, "py4j.GatewayServer", "--die-on-broken-pipe", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        port = int(self._process.stdout.readline())
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        self.jvm = self._gateway.jvm
        self.set_up("")

    def set_up(self, endpoint: str, **more: str) -> None:
        """Use the server at ``endpoint`` from now on, with settings of S3A (``_`` for ``.``)."""
        self.conf = self.jvm.org.apache.hadoop.conf.Configuration()
        settings = {"endpoint": endpoint, "path_style_access": "true", "endpoint_region": "us-east-1"}
        settings |= {"access_key": "test", "secret_key": "test", **more}
        for key, value in settings.items():
            self.conf.set("fs.s3a." + key.replace("_", "."), value)

    def path(self, uri: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(uri)

    def store(self, class_name: str) -> Any:
        """Return a log store of the class."""
        made = self.jvm
        for part in class_name.split("."):
            made = getattr(made, part)
        return made(self.conf)

    def write(self, class_name: str, uri: str, *lines: Any, overwrite: bool = False) -> str:
        """Write a file through a log store of the class; return ``written`` or the class of the exception."""
        try:
            self.store(class_name).write(self.path(uri), self.lines(*lines), overwrite, self.conf)
        except Py4JJavaError as error:
            self.error = str(error.java_exception.getMessage())
            return str(error.java_exception.getClass().getName())
        return "written"

    def lines(self, *lines: Any) -> Any:
        """Return a Java iterator."""
        found = self.jvm.java.util.ArrayList()
        for line in lines:
            found.add(line)
        return found.iterator()

    def stop(self) -> None:
        self._gateway.shutdown()
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="session")
def jvms() -> Iterator[list[Driver]]:
    """Drivers, each started when it is first requested."""
    made: list[Driver] = []
    yield made
    for driver in made:
        driver.stop()


@pytest.fixture
def drivers(jvms: list[Driver], server: Server) -> Any:
    """Return this many drivers, set up for the server, with more settings of S3A."""

    def give(count: int, **more: str) -> list[Driver]:
        while len(jvms) < count:
            jvms.append(Driver())
        for driver in jvms[:count]:
            driver.set_up(server.endpoint, **more)
        return jvms[:count]

    return give
