"""The master of a connection of type ``spark``: its checks, and the submission of an application."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.backends.conf_by_size import ConfBySize
from airflow_provider_fds.credentials import is_secret
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.settings import cache_dir
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.installation.install import brought_delta_problems, java_problem, spark_problem
from airflow_provider_fds.spark.installation.own_spark import OwnSpark, choose_spark, own_delta_problems
from airflow_provider_fds.spark.runtime.settings import conf_problems, is_local_master, master_problem
from airflow_provider_fds.spark.submission.submit import SubmitArguments, submission, submit_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_provider_fds.backends.base import Application, UserArguments
    from airflow_provider_fds.backends.fleet_application import FleetApplication
    from airflow_provider_fds.spark.submission.object_store import JobStorage

_PACKAGES: Final = "spark.jars.packages"
_YARN_ATTEMPTS: Final = "spark.yarn.maxAppAttempts"


@dataclass(frozen=True)
class SparkMaster:
    """Where driver and executors run.

    Attributes:
        conn_id: The Airflow connection, ``None`` on the command line.
        master: Spark's master URL.
        deploy_mode: ``client``, ``cluster`` or ``None`` (Spark's default, client).
        binary: The spark-submit that operator or connection name, or ``None`` if they name none.
    """

    conn_id: str | None
    master: str
    deploy_mode: str | None
    binary: str | None = None

    @property
    def subject(self) -> str:
        """What a message calls it."""
        return f"--master {self.master}" if self.conn_id is None else f"connection {self.conn_id!r}"

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return is_local_master(self.master)

    @property
    def shows_environment(self) -> bool:
        """Whether environment variables become arguments of spark-submit (YARN, Kubernetes)."""
        return "yarn" in self.master or "k8s" in self.master

    @property
    def is_standalone_cluster(self) -> bool:
        """Whether a standalone cluster runs the driver: its REST server starts it, without spark-submit."""
        return self.deploy_mode == "cluster" and self.master.startswith("spark://")

    @property
    def is_yarn_cluster(self) -> bool:
        """Whether YARN runs the driver."""
        return self.deploy_mode == "cluster" and self.master == "yarn"

    @property
    def is_kubernetes(self) -> bool:
        """Whether Kubernetes runs the executors."""
        return self.master.startswith("k8s://")

    @property
    def is_kubernetes_cluster(self) -> bool:
        """Whether Kubernetes runs the driver."""
        return self.deploy_mode == "cluster" and self.is_kubernetes

    @property
    def forced_conf(self) -> dict[str, str]:
        """Settings without which the cluster would start a driver again by itself, beside the one that still works."""
        return {_YARN_ATTEMPTS: "1"} if self.is_yarn_cluster else {}

    @property
    def driver_is_here(self) -> bool:
        """Whether the driver runs on this machine."""
        return self.is_local or self.deploy_mode != "cluster"

    def own_spark(self, given: UserArguments) -> OwnSpark | None:
        """Return the user's Spark to start, or ``None`` for that of the installed pyspark.

        Raises:
            SparkSetupError: As :func:`~airflow_provider_fds.spark.installation.own_spark.choose_spark`.
        """
        env_vars = {} if self.shows_environment else {name: str(value) for name, value in given.env_vars.items()}
        return choose_spark(self.master, self.binary, env_vars, cache_dir(), driver_is_here=self.driver_is_here)


def check_master(place: SparkMaster, given: UserArguments) -> None:
    """Check everything that can be checked before a plan or a write.

    Starts no JVM except for ``java -version`` and, once for the user's own Spark, ``spark-submit --version``.

    Raises:
        ConfigurationError: No Java for a driver on this machine, no matching pyspark, or a forbidden setting.
            Reports all problems at once.
    """
    problems = conf_problems(given.conf)
    if given.conf_by_size is not None:
        steps = ConfBySize.parse(given.conf_by_size).steps
        problems += dict.fromkeys(problem for _, conf in steps for problem in conf_problems(conf))
    problems += _place_problems(place, given)
    problems += _spark_problems(place, given)
    if problems:
        raise ConfigurationError(*problems, subject=f"Spark job of {place.subject}", reason=Reason.SPARK_UNUSABLE)


def _spark_problems(place: SparkMaster, given: UserArguments) -> list[str]:
    """Return what is wrong with the Spark to start, its Java and its Delta, one sentence each."""
    conf = given.conf
    brought = [given.packages, conf.get(_PACKAGES), given.jars, conf.get("spark.jars")]
    brought += [given.driver_class_path, conf.get("spark.driver.extraClassPath")]
    try:
        spark = place.own_spark(given)
    except SparkSetupError as error:
        return [str(error)]
    if spark is not None:
        return own_delta_problems(spark, brought, given.delta_version)
    found = (java_problem() if place.driver_is_here else None, spark_problem())
    problems = [problem for problem in found if problem is not None]
    return problems if given.delta_version else problems + brought_delta_problems(*brought)


def _place_problems(place: SparkMaster, given: UserArguments) -> list[str]:
    """Return what the master does not allow, one sentence each."""
    problem = master_problem(place.master)
    problems = [] if problem is None else [problem]
    if place.deploy_mode and place.deploy_mode not in ("client", "cluster"):
        problems.append(
            f"{place.subject} has the deploy mode {place.deploy_mode!r}, expected 'client' or 'cluster', in lower case"
        )
    secret = sorted(name for name in given.env_vars if is_secret(name, given.env_vars[name]))
    if secret and place.shows_environment:
        problems.append(
            f"env_vars has {', '.join(secret)}: on {place.master}, spark-submit gets each variable as an "
            "argument, which every user of this machine can read and Spark's UI shows. Give the cluster the "
            "secret in its own way (a Kubernetes secret, a Hadoop credential provider), or as a setting in conf, "
            "which FDS passes in a file"
        )
    problems += [
        f"Spark setting {name} is {given.conf[name]!r}, but FDS needs {value!r}: YARN would start the driver again "
        "while the first one may still write. Remove it; the retry of the task starts the next driver"
        for name, value in place.forced_conf.items()
        if str(given.conf.get(name, value)).strip() != value
    ]
    if place.is_standalone_cluster:
        from airflow_provider_fds.backends.cluster_driver import request_problems

        problems += request_problems(place.master, given)
    if place.is_kubernetes_cluster:
        from airflow_provider_fds.spark.clusters.kubernetes import POD_NAME, WAITS

        problems += [
            f"Spark setting {name} is {given.conf[name]!r}, but FDS sets it for each driver, to find that again. "
            "Remove it"
            for name in (POD_NAME, WAITS)
            if name in given.conf
        ]
    return problems


def prepare_submission(
    place: SparkMaster,
    spec_uri: str,
    *,
    given: UserArguments,
    storage: JobStorage,
    cache_dir: Path | None,
    num_bytes: int = 0,
) -> SubmitArguments:
    """Return the arguments of spark-submit for FDS's job, with the user's own merged in.

    The user's settings take precedence over FDS's, except for the settings that a batch needs to be loaded correctly: a
    contradiction to these is refused. Delta's JARs are added unless the user brings Delta as a package; the S3 file
    system is added if a URI needs it and the Spark is pip's, which lacks it.

    Args:
        place: Where the job runs.
        spec_uri: URI of the job spec.
        given: The user's arguments.
        storage: Where Spark reads and writes.
        cache_dir: For JARs and the driver's modules.
        num_bytes: Planned bytes of all its batches.

    Raises:
        ConfigurationError: JARs cannot be obtained, the cache cannot be written, and as :func:`check_master`.
    """
    packages = _joined(",", given.packages, given.conf.get(_PACKAGES))
    try:
        made = submit_arguments(
            spec_uri,
            master=place.master,
            deploy_mode=place.deploy_mode or "client",
            conf={**given.conf, _PACKAGES: packages} if packages else given.conf,
            cache_dir=cache_dir,
            own_spark=place.own_spark(given),
            delta_version=given.delta_version,
            jars=given.jars,
            class_path=given.driver_class_path,
            storage=storage,
            properties_file=given.properties_file,
            num_bytes=num_bytes,
        )
    except SparkSetupError as error:
        raise ConfigurationError(
            f"Spark cannot be started for {place.subject}: {error}", reason=Reason.SPARK_UNUSABLE
        ) from error
    return replace(
        made,
        conf={**made.conf, **place.forced_conf},
        jars=_joined(",", made.jars, given.jars),
        driver_class_path=_joined(":", made.driver_class_path, given.driver_class_path),
        py_files=_joined(",", given.py_files, made.py_files) or "",
        env_vars={**made.env_vars, **given.env_vars},
        # valid only for FDS's own class path
        class_archive=None if given.driver_class_path else made.class_archive,
    )


def application_arguments(
    place: SparkMaster, application: Application | FleetApplication, given: UserArguments
) -> SubmitArguments:
    """Return the arguments of spark-submit for an application, see :func:`prepare_submission`.

    Raises:
        ConfigurationError: As :func:`prepare_submission`, and what is wrong with the settings for its size.
    """
    given = given.for_application(application)
    if problems := conf_problems(given.conf):
        raise ConfigurationError(*problems, subject="settings of conf_by_size", reason=Reason.SPARK_UNUSABLE)
    return prepare_submission(
        place,
        application.spec_uri,
        given=given,
        storage=application.storage(),
        cache_dir=cache_dir(),
        num_bytes=application.num_bytes,
    )


@contextmanager
def submitted(place: SparkMaster, made: SubmitArguments, cache_dir: Path | None) -> Iterator[SubmitArguments]:
    """Yield the arguments for spark-submit, valid while the body runs.

    Raises:
        ConfigurationError: The file of the secret settings cannot be written.
    """
    with ExitStack() as stack:
        try:
            given = stack.enter_context(submission(made, cache_dir))
        except SparkSetupError as error:
            raise ConfigurationError(
                f"Spark cannot be started for {place.subject}: {error}", reason=Reason.SPARK_UNUSABLE
            ) from error
        yield given


def _joined(separator: str, *parts: str | None) -> str | None:
    return separator.join(part for part in parts if part) or None
