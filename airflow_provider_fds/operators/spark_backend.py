"""The Spark connection, checked before anything starts, and what spark-submit needs for it."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.hooks.spark_submit import ALLOWED_SPARK_BINARIES, DEFAULT_SPARK_BINARY

from airflow_provider_fds.credentials import is_secret
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.storage import find_connection
from airflow_provider_fds.operators.spark_connect import OF_A_DRIVER, ConnectBackend, connect_backend
from airflow_provider_fds.spark.launch import (
    JobStorage,
    SparkSetupError,
    SubmitArguments,
    brought_delta_problems,
    conf_problems,
    is_local_master,
    java_problem,
    other_spark_problem,
    spark_problem,
    submission,
    submit_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PACKAGES: Final = "spark.jars.packages"


@dataclass(frozen=True)
class GivenArguments:
    """The user's own arguments of spark-submit, rendered."""

    conf: dict[str, Any] = field(default_factory=dict)
    jars: str | None = None
    packages: str | None = None
    py_files: str | None = None
    driver_class_path: str | None = None
    env_vars: dict[str, Any] = field(default_factory=dict)
    properties_file: str | None = None


@dataclass(frozen=True)
class SparkBackend:
    """Where the job runs.

    Attributes:
        conn_id: The Airflow connection.
        master: Spark's master URL.
        deploy_mode: ``client``, ``cluster`` or ``None`` (Spark's default, client).
        binary: The spark-submit that operator or connection name, ``None`` if they name none.
    """

    conn_id: str
    master: str
    deploy_mode: str | None
    binary: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return is_local_master(self.master)

    @property
    def shows_environment(self) -> bool:
        """Whether environment variables become arguments of spark-submit (YARN, Kubernetes)."""
        return "yarn" in self.master or "k8s" in self.master

    @property
    def driver_is_here(self) -> bool:
        """Whether the driver runs on this machine."""
        return self.is_local or self.deploy_mode != "cluster"

    @property
    def uses_bundled_spark(self) -> bool:
        """Whether the Spark inside pip's pyspark is started: always for a local master, else if there is no other."""
        if self.binary is not None:
            return False
        return self.is_local or shutil.which("spark-submit") is None


@dataclass(frozen=True)
class SessionBackend(SparkBackend):
    """A Spark whose driver is a child of the task's process: that of the installed pyspark, in client mode."""

    @property
    def uses_bundled_spark(self) -> bool:
        """Always."""
        return True

    def check(self, operator: Any, given: GivenArguments) -> None:
        """Check what can be checked before anything is planned.

        Raises:
            ConfigurationError: What goes with spark-submit only, and as :func:`check_backend`.
        """
        problems = []
        if names := [name for attribute, name in OF_A_DRIVER.items() if getattr(operator, attribute)]:
            problems.append(
                f"{', '.join(names)} cannot be given: Spark is started inside the task, not by spark-submit. Say it as "
                "settings in conf (spark.jars, spark.driver.memory …)"
            )
        if self.deploy_mode not in (None, "client"):
            problems.append(
                f"connection {self.conn_id!r} has deploy-mode {self.deploy_mode!r}: the driver of a function is this "
                "task's process. Leave it out, or say 'client'"
            )
        if self.binary is not None and not names:
            problems.append(
                f"connection {self.conn_id!r} names a spark-submit (spark-binary), and Spark is that of the installed "
                "pyspark here. Use a connection without it"
            )
        if problems:
            raise ConfigurationError(*problems, subject=f"Spark session of connection {self.conn_id!r}")
        check_backend(self, given)


def find_backend(
    conn_id: str, *, deploy_mode: str | None = None, spark_binary: str | None = None
) -> SparkBackend | ConnectBackend:
    """Return the backend of a Spark connection, by its type.

    Airflow's own hook turns a connection that it does not find into the master ``yarn``, in silence.

    Raises:
        ConfigurationError: There is no such connection, or it is of another type than ``spark`` and
            ``spark_connect``.
    """
    connection: Any = find_connection(conn_id, "Spark connection (conn_id) of this operator")
    if connection.conn_type == "spark_connect":
        return connect_backend(conn_id, connection)
    if connection.conn_type != "spark":
        raise ConfigurationError(
            f"Connection {conn_id!r} is of type {connection.conn_type!r}, expected 'spark' or 'spark_connect'. Name "
            "a connection of type 'spark' as conn_id (its host is the master: local[*], spark://host:7077, yarn, "
            "k8s://…), or one of type 'spark_connect' (its host and port are those of a running server)."
        )
    if not connection.host:
        raise ConfigurationError(
            f"Spark connection {conn_id!r} has no host. Its host is Spark's master: local[*], spark://host:7077, yarn "
            "or k8s://…"
        )
    # as SparkSubmitHook puts the master together
    is_whole = "://" in connection.host or not connection.port
    master = connection.host if is_whole else f"spark://{connection.host}"
    if connection.port:
        master = f"{master}:{connection.port}"
    extra = connection.extra_dejson
    binary = spark_binary or extra.get("spark-binary")
    if not spark_binary and binary and binary not in ALLOWED_SPARK_BINARIES:
        raise ConfigurationError(
            f"Spark connection {conn_id!r} has the spark-binary {binary!r}; Airflow's Spark provider allows the names "
            f"{', '.join(ALLOWED_SPARK_BINARIES)} there, found on the worker's PATH"
        )
    return SparkBackend(
        conn_id=conn_id,
        master=master,
        deploy_mode=deploy_mode or extra.get("deploy-mode"),
        binary=binary or None,
    )


def check_backend(backend: SparkBackend, given: GivenArguments) -> None:
    """Check what can be checked before anything is planned or written. Starts no JVM but ``java -version``.

    Raises:
        ConfigurationError: No Java for a driver on this machine, no pyspark that fits, or a setting that must not
            be; all problems at once.
    """
    problems = conf_problems(given.conf)
    problems += _place_problems(backend, given)
    if backend.driver_is_here and (problem := java_problem()) is not None:
        problems.append(problem)
    if backend.uses_bundled_spark:
        if (problem := spark_problem()) is not None:
            problems.append(problem)
        conf = given.conf
        problems += brought_delta_problems(given.packages, conf.get(_PACKAGES), given.jars, conf.get("spark.jars"))
        problems += brought_delta_problems(given.driver_class_path, conf.get("spark.driver.extraClassPath"))
    else:
        spark_home = given.env_vars.get("SPARK_HOME") or os.environ.get("SPARK_HOME")
        if (problem := other_spark_problem(backend.binary or DEFAULT_SPARK_BINARY, spark_home)) is not None:
            problems.append(problem)
    if problems:
        raise ConfigurationError(*problems, subject=f"Spark job of connection {backend.conn_id!r}")


def _place_problems(backend: SparkBackend, given: GivenArguments) -> list[str]:
    """Return what the master does not allow, one sentence each."""
    problems = []
    secret = sorted(name for name in given.env_vars if is_secret(name, given.env_vars[name]))
    if secret and backend.shows_environment:
        problems.append(
            f"env_vars has {', '.join(secret)}: on {backend.master} spark-submit gets each variable as an argument, "
            "which every user of this machine can read, and shows it in Spark's UI. Give the secret to the cluster by "
            "its own means (a Kubernetes secret, a Hadoop credential provider), or as a setting in conf: FDS hands "
            "those over in a file"
        )
    if backend.deploy_mode == "cluster" and backend.master.startswith("spark://"):
        problems.append(
            "deploy_mode is 'cluster': Spark does not start Python applications inside a standalone cluster. Leave it "
            "out, or say 'client'"
        )
    return problems


def prepare_submission(
    backend: SparkBackend,
    spec_uri: str,
    *,
    given: GivenArguments,
    storage: JobStorage,
    cache_dir: Path | None,
    num_bytes: int = 0,
) -> SubmitArguments:
    """Return the arguments of spark-submit for FDS's job, the user's own merged in.

    The user's settings go before FDS's, but for those without which a batch is not loaded right: a contradiction to
    these is refused. Delta's JARs are added unless the user brings Delta as a package; the S3 file system is added
    where a URI needs it and the Spark is pip's, which has none.

    Args:
        backend: Where the job runs.
        spec_uri: URI of the job spec.
        given: The user's arguments.
        storage: Where Spark reads and writes.
        cache_dir: For JARs and the driver's modules.
        num_bytes: Planned bytes of all its batches.

    Raises:
        ConfigurationError: JARs that cannot be had, a cache that cannot be written, and as :func:`check_backend`.
    """
    packages = _joined(",", given.packages, given.conf.get(_PACKAGES))
    try:
        made = submit_arguments(
            spec_uri,
            master=backend.master,
            deploy_mode=backend.deploy_mode or "client",
            conf={**given.conf, _PACKAGES: packages} if packages else given.conf,
            cache_dir=cache_dir,
            use_bundled_spark=backend.uses_bundled_spark,
            storage=storage,
            properties_file=given.properties_file,
            num_bytes=num_bytes,
        )
    except SparkSetupError as error:
        raise ConfigurationError(f"Spark cannot be started for connection {backend.conn_id!r}: {error}") from error
    return replace(
        made,
        jars=_joined(",", made.jars, given.jars),
        driver_class_path=_joined(":", made.driver_class_path, given.driver_class_path),
        py_files=_joined(",", given.py_files, made.py_files) or "",
        env_vars={**made.env_vars, **given.env_vars},
        # it is of FDS's class path alone
        class_archive=None if given.driver_class_path else made.class_archive,
    )


@contextmanager
def submitted(backend: SparkBackend, made: SubmitArguments, cache_dir: Path | None) -> Iterator[SubmitArguments]:
    """Give the arguments with which spark-submit is called, as long as the body runs.

    Raises:
        ConfigurationError: The file of the secret settings cannot be written.
    """
    with ExitStack() as stack:
        try:
            given = stack.enter_context(submission(made, cache_dir, use_bundled_spark=backend.uses_bundled_spark))
        except SparkSetupError as error:
            raise ConfigurationError(f"Spark cannot be started for connection {backend.conn_id!r}: {error}") from error
        yield given


def _joined(separator: str, *parts: str | None) -> str | None:
    return separator.join(part for part in parts if part) or None
