"""One warm Spark for many runs: the driver's job, run in an existing session.

``python -m tests.chaos.warm_spark serve`` starts the session and prints its port. ``python -m tests.chaos.warm_spark
<port> run …`` is `fds run`, but its job goes to that session instead of its own spark-submit: the same driver code,
real Spark, real Delta commits, in one second instead of ten. Several jobs run in parallel, and a job continues when the
process that sent it is gone, as on a Connect server.
"""

from __future__ import annotations

import os
import socket
import socketserver
import sys
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.fault_points import reach

if TYPE_CHECKING:
    from collections.abc import Callable

#: Returned if the job could not even be read.
BROKEN = 1


def serve(s3_endpoint: str | None = None) -> None:
    """Serve until standard input ends, which happens when the tests end."""
    from pyspark.sql import SparkSession

    from airflow_provider_fds.batch.spec import JobSpec
    from airflow_provider_fds.spark.application.job_run import run
    from airflow_provider_fds.spark.installation.jars import HADOOP_AWS_PACKAGE, delta_jars
    from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path, read_bytes
    from airflow_provider_fds.spark.runtime.settings import lean_conf
    from tests.interop.quick_spark import server_settings

    builder = SparkSession.builder.master("local[2]").appName("fds-chaos")
    jars = ",".join(str(jar) for jar in delta_jars())
    conf = {**lean_conf("local[2]"), **server_settings(), "spark.jars": jars, "spark.driver.memory": "2g"}
    if s3_endpoint is not None:
        s3a = {"endpoint": s3_endpoint, "path.style.access": "true", "access.key": "test", "secret.key": "test"}
        conf |= {f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()}
        conf |= {"spark.jars.packages": HADOOP_AWS_PACKAGE, "spark.hadoop.fs.s3a.endpoint.region": "us-east-1"}
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()

    class Job(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            uri = self.rfile.readline().decode().strip()
            try:
                code = run(spark, JobSpec.from_file(uri, read_bytes(hadoop_path(uri, spark), spark)))
            except Exception as error:  # noqa: BLE001 - it belongs to one job, the others continue
                print(f"{uri}: {error}", file=sys.stderr, flush=True)
                code = BROKEN
            try:
                self.wfile.write(f"{code}\n".encode())
            except OSError:
                print(f"whoever sent {uri} is gone")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 64

    with Server(("127.0.0.1", 0), Job) as server:
        import threading

        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"port {server.server_address[1]}", flush=True)
        sys.stdin.read()
    # the JVM ends with its standard input, which this process holds
    os._exit(0)


def run_in(port: int) -> Callable[..., int]:
    """Return a replacement for ``run_locally``: it sends the job to the warm session and waits for its end."""

    def run(spec_uri: str, *_: Any, **__: Any) -> int:
        reach("submit.before")
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(f"{spec_uri}\n".encode())
            code = int(connection.makefile().readline() or BROKEN)
        reach("submit.after")
        return code

    return run


def main(arguments: list[str]) -> int:
    """Serve, or act as `fds` with the warm session."""
    if arguments[0] == "serve":
        serve(*arguments[1:])
    from airflow_provider_fds.cli.main import main as fds
    from airflow_provider_fds.spark.submission import launch

    launch.run_locally = run_in(int(arguments[0]))
    return fds(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
