"""A submission: the lean command of spark-submit and its settings.

Measured for one batch of five small files: a usual spark-submit (``--packages``, default settings) takes 29.9 s, this
configuration 14.5 s. Most of the gain comes from the size of Delta's state and shuffle stages; on local masters the
rest comes from JARs on the JVM's class path, a compiler that stops early, and an archive of classes.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.credentials import is_secret
from airflow_provider_fds.spark.installation.cache import SparkSetupError, default_cache_dir
from airflow_provider_fds.spark.installation.install import (
    brought_delta_problems,
    bundled_spark_home,
    delta_package,
    spark_env,
)
from airflow_provider_fds.spark.installation.jars import HADOOP_AWS_PACKAGE, delta_jars, s3a_jars, unity_jars
from airflow_provider_fds.spark.installation.own_spark import PROVIDED, OwnSpark, brought_deltas, own_delta_problems
from airflow_provider_fds.spark.runtime.settings import (
    DEFAULT_JAVA_OPTIONS,
    DELTA_EXTENSION,
    EXTENSIONS,
    JAVA_OPTIONS,
    LIGHT_JVM,
    QUICK_COLLECTOR,
    conf_problems,
    is_local_master,
    lean_conf,
    setting_text,
)
from airflow_provider_fds.spark.runtime.versions import minor
from airflow_provider_fds.spark.submission.class_archive import ClassArchive, class_archive
from airflow_provider_fds.spark.submission.driver_zip import driver_zip, job_file
from airflow_provider_fds.spark.submission.object_store import (
    JobStorage,
    log_store_jar,
    log_store_settings,
    s3a_settings,
)
from airflow_provider_fds.spark.submission.properties import private_file, properties_text, property_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from airflow_provider_fds.places import Place

#: Maven artifacts that show that the user brings Delta or S3A.
_DELTA_ARTIFACT: Final = "io.delta:delta-spark"
_S3A_ARTIFACT: Final = ":hadoop-aws:"

#: Option of spark-submit, since Spark 4.
LOAD_DEFAULTS: Final = "--load-spark-defaults"
_LOADS_DEFAULTS_SINCE: Final = 4
#: Its S3A has version 2 of Amazon's library.
_TAKES_VENDED_KEYS_SINCE: Final = 4

#: Airflow's hook looks for these among its own arguments, to follow an application.
_READ_FROM_ARGUMENTS: Final = frozenset(
    {
        "spark.kubernetes.namespace",
        "spark.kubernetes.submission.waitAppCompletion",
        "spark.yarn.submit.waitAppCompletion",
    }
)

_PACKAGES: Final = "spark.jars.packages"
_JARS: Final = "spark.jars"
_CLASS_PATH: Final = "spark.driver.extraClassPath"


@dataclass(frozen=True)
class SubmitArguments:
    """The arguments of spark-submit; fields are named after those of ``SparkSubmitOperator``.

    Attributes:
        application: The job's file.
        application_args: The URI of the job spec.
        conf: Spark settings, including the user's.
        jars: Delta's JARs if executors need them too, comma separated, else ``None``.
        driver_class_path: Delta's JARs on local masters, colon separated, else ``None``.
        properties_file: A file of settings, else ``None``.
        loads_defaults: Whether ``spark-defaults.conf`` is read in addition to that file.
        secret_conf: Settings of the storages, over which the user's take precedence; :func:`submission` writes them to
            such a file.
        class_archive: The archive of classes that the driver uses, or would use if it existed.
        users_settings: Names of the settings that are the user's.
        own_spark: The user's own Spark, or ``None`` for the one of the installed pyspark.
        py_files: The driver's modules; empty for none.
        main_class: The class that runs, if ``application`` is no file of Python.
        env_vars: Environment of the driver, for local and client mode with the bundled Spark; else empty.
        spark_binary: spark-submit of the Spark that is started.
    """

    master: str
    deploy_mode: str
    application: str
    application_args: tuple[str, ...]
    conf: dict[str, str]
    jars: str | None
    driver_class_path: str | None
    py_files: str
    env_vars: dict[str, str] = field(default_factory=dict)
    spark_binary: str = "spark-submit"
    properties_file: str | None = None
    loads_defaults: bool = False
    secret_conf: dict[str, str] = field(default_factory=dict, repr=False)
    class_archive: ClassArchive | None = None
    users_settings: frozenset[str] = frozenset()
    own_spark: OwnSpark | None = None
    main_class: str | None = None

    def command(self) -> list[str]:
        """Return the command line. Its environment is :attr:`env_vars` on top of this process's."""
        command = [self.spark_binary, "--master", self.master, "--deploy-mode", self.deploy_mode]
        if self.properties_file:
            command += ["--properties-file", self.properties_file]
        if self.loads_defaults:
            command.append(LOAD_DEFAULTS)
        for key, value in self.conf.items():
            command += ["--conf", f"{key}={value}"]
        if self.jars:
            command += ["--jars", self.jars]
        if self.driver_class_path:
            command += ["--driver-class-path", self.driver_class_path]
        if self.py_files:
            command += ["--py-files", self.py_files]
        if self.main_class:
            command += ["--class", self.main_class]
        return [*command, self.application, *self.application_args]


def submit_arguments(
    spec_uri: str,
    *,
    master: str,
    deploy_mode: str = "client",
    conf: Mapping[str, Any] | None = None,
    cache_dir: Path | None = None,
    own_spark: OwnSpark | None = None,
    delta_version: str | None = None,
    jars: str | None = None,
    class_path: str | None = None,
    storage: JobStorage | None = None,
    properties_file: str | None = None,
    num_bytes: int | None = 0,
) -> SubmitArguments:
    """Build the arguments of spark-submit for the job at ``spec_uri``.

    Local masters get Delta's JARs on the JVM's class path; others get them as ``--jars``, because executors need them
    too. The user's own Spark gets the Delta for its version, unless it already has one. If the job touches S3, the
    bundled Spark gets the file system that it lacks, S3A gets Airflow's keys, and commits to a sink there go through
    FDS's log store.

    Args:
        spec_uri: URI of the :class:`~airflow_provider_fds.batch.spec.JobSpec`.
        master: Spark master URL.
        deploy_mode: ``client`` or ``cluster``.
        conf: The user's Spark settings; they take precedence over all but the forced ones.
        cache_dir: For JARs and zip; default :func:`default_cache_dir`.
        own_spark: The user's Spark to start; ``None``: the one that pip installed, with this Python (client mode only).
        delta_version: A version of Delta in place of the one that FDS chooses, or ``"provided"``: add none.
        jars: The user's own ``--jars``, which the caller adds; a Delta among them stands for FDS's own.
        class_path: The user's own class path, which the caller adds; likewise.
        storage: Where the job reads and writes.
        properties_file: The user's own file of settings; its S3 settings take precedence.
        num_bytes: Planned bytes of all its batches; with many, a local driver compiles more thoroughly, which takes
            longer. ``None``: it goes on without end.

    Raises:
        SparkSetupError: Spark cannot start here, ``conf`` contradicts a forced setting, or a place of ``storage``
            cannot be reached.
    """
    storage = JobStorage() if storage is None else storage
    settings = merged_conf(lean_conf(master, deploy_mode, num_bytes), conf)
    cache = default_cache_dir() if cache_dir is None else cache_dir
    is_local = is_local_master(master)
    use_bundled_spark = own_spark is None
    packages = [package.strip() for package in settings.get(_PACKAGES, "").split(",") if package.strip()]
    added = _added_delta(own_spark, delta_version, settings, jars, class_path)
    brings_delta = any(package.startswith(_DELTA_ARTIFACT) for package in packages)
    # a class and its superclass must come from one class loader: packages are in that of --jars
    on_class_path = is_local and not brings_delta
    spark_submit = None if own_spark is None else own_spark.path
    own_jars = [] if added is None else [str(jar) for jar in delta_jars(cache, added, spark_submit)]
    if use_bundled_spark and storage.is_on_s3 and not any(_S3A_ARTIFACT in package for package in packages):
        if on_class_path:
            # as a package, Spark would copy its 700 MB at every start
            own_jars += [str(jar) for jar in s3a_jars(cache)]
        else:
            packages.append(HADOOP_AWS_PACKAGE)
    if packages:
        settings[_PACKAGES] = ",".join(packages)

    own = own_settings(storage, conf, properties_file, own_spark)
    log_store = log_store_settings(storage, own)
    vended = vended_table(storage, own, own_spark)
    shown, secret = s3a_settings(storage, own, vended)
    if vended is not None:
        own_jars += [str(jar) for jar in unity_jars(cache, spark_submit)]
    settings |= {**log_store, **shown}
    if log_store:
        own_jars.append(str(log_store_jar()))
    env: dict[str, str] = {}
    binary = str(bundled_spark_home() / "bin" / "spark-submit") if own_spark is None else own_spark.command
    archive: ClassArchive | None = None
    if use_bundled_spark and deploy_mode == "client":
        # otherwise a folder spark-warehouse appears in the process's working directory
        settings.setdefault("spark.sql.warehouse.dir", f"file:{cache.absolute() / 'warehouse'}")
        env = spark_env(bundled_spark_home())
        if is_local:
            env["SPARK_LOCAL_IP"] = "127.0.0.1"
        if on_class_path and _CLASS_PATH not in settings:
            archive = class_archive(":".join(own_jars), " ".join(LIGHT_JVM), cache)
            if archive is not None and (options := archive.options()):
                settings[DEFAULT_JAVA_OPTIONS] = " ".join([settings[DEFAULT_JAVA_OPTIONS], *options])
    return SubmitArguments(
        master=master,
        deploy_mode=deploy_mode,
        application=str(job_file()),
        application_args=(spec_uri,),
        conf=settings,
        jars=None if on_class_path else ",".join(own_jars) or None,
        driver_class_path=":".join(own_jars) or None if on_class_path else None,
        py_files=str(driver_zip(cache)),
        env_vars=env,
        spark_binary=binary,
        properties_file=properties_file,
        secret_conf=secret,
        class_archive=archive,
        users_settings=frozenset(conf or {}),
        own_spark=own_spark,
    )


def own_settings(
    storage: JobStorage, conf: Mapping[str, Any] | None, properties_file: str | None, own_spark: OwnSpark | None
) -> dict[str, Any]:
    """Return the user's own settings, those of files by name only; the files are read for a job on S3.

    Args:
        storage: Where the job reads and writes.
        conf: The user's Spark settings.
        properties_file: The user's own file of settings.
        own_spark: The user's Spark, which may have defaults.

    Raises:
        SparkSetupError: A file cannot be read.
    """
    own = dict(conf or {})
    if storage.is_on_s3:
        own |= dict.fromkeys(property_names(_properties_text(properties_file, own_spark, env={})), "")
    return own


def vended_table(storage: JobStorage, own: Mapping[str, Any], own_spark: OwnSpark | None) -> Place | None:
    """Return the table for which the Spark of a job asks its catalog for keys, see :meth:`JobStorage.vended`.

    Args:
        storage: Where the job reads and writes.
        own: The user's own settings, see :func:`own_settings`.
        own_spark: The user's Spark. Before Spark 4, S3A takes no provider of that kind.

    Raises:
        SparkSetupError: As :meth:`JobStorage.vended`.
    """
    if own_spark is not None and minor(own_spark.version)[0] < _TAKES_VENDED_KEYS_SINCE:
        return None
    return storage.vended(own)


@contextmanager
def submission(arguments: SubmitArguments, cache_dir: Path | None = None) -> Iterator[SubmitArguments]:
    """Yield the arguments with which spark-submit is called, while the body runs.

    The user's settings and those of the storages are in a properties file that only this user can read and that is
    removed afterwards, so that nobody has to know which of them are secret. From there Spark treats them like
    ``--conf``, on a cluster too. Such a file replaces the user's own or Spark's defaults, so it contains them. The
    defaults of another Spark are known only to that Spark, which is told to read them too. Spark 3.5 has no option for
    that, and its defaults may not be found; there the file contains only what is secret by name or value, and is
    omitted if nothing is.

    Raises:
        SparkSetupError: The file cannot be written, or the one it replaces cannot be read.
    """
    spark = arguments.own_spark
    knows_option = spark is not None and minor(spark.version)[0] >= _LOADS_DEFAULTS_SINCE
    is_all = spark is None or knows_option or arguments.properties_file is not None
    own = {
        key: value
        for key, value in arguments.conf.items()
        if (is_all and key in arguments.users_settings and key not in _READ_FROM_ARGUMENTS) or is_secret(key, value)
    }
    if not own and not arguments.secret_conf:
        yield arguments
        return
    cache = default_cache_dir() if cache_dir is None else cache_dir
    given, rest = arguments.properties_file, ""
    loads_defaults = given is None and knows_option
    if not loads_defaults:
        rest = _properties_text(given, spark, env=arguments.env_vars)
    with private_file(cache, arguments.secret_conf, rest, own) as path:
        yield replace(
            arguments,
            conf={key: value for key, value in arguments.conf.items() if key not in own},
            properties_file=str(path),
            loads_defaults=loads_defaults,
            secret_conf={},
        )


def merged_conf(lean: Mapping[str, str], user: Mapping[str, Any] | None) -> dict[str, str]:
    """Return ``lean`` overridden by the user's settings; settings that must hold together are merged, not replaced.

    Raises:
        SparkSetupError: A setting of the user contradicts one that a batch needs to be loaded correctly.
    """
    own = {key: setting_text(value) for key, value in (user or {}).items()}
    if problems := conf_problems(own):
        raise SparkSetupError("; ".join(problems))
    conf = {**lean, **own}
    if DELTA_EXTENSION not in conf.get(EXTENSIONS, "").split(","):
        conf[EXTENSIONS] = f"{conf[EXTENSIONS]},{DELTA_EXTENSION}"
    java_options = conf.get(DEFAULT_JAVA_OPTIONS, "")
    if re.search(r"-XX:\+Use\w+GC", own.get(JAVA_OPTIONS, "")):
        # the JVM refuses to start with two collectors
        java_options = java_options.replace(QUICK_COLLECTOR, "").strip()
    if java_options:
        conf[DEFAULT_JAVA_OPTIONS] = re.sub(r" {2,}", " ", java_options)
    return conf


def _added_delta(
    own_spark: OwnSpark | None,
    delta_version: str | None,
    settings: Mapping[str, str],
    jars: str | None,
    class_path: str | None,
) -> str | None:
    """Return the Maven coordinates of the Delta that FDS adds, ``None`` where there is one or is not to be any.

    Raises:
        SparkSetupError: A Delta that the user gives does not fit the Spark.
    """
    brought = (settings.get(_PACKAGES), settings.get(_JARS), settings.get(_CLASS_PATH), jars, class_path)
    if own_spark is None:
        if delta_version is None and (problems := brought_delta_problems(settings.get(_PACKAGES), settings.get(_JARS))):
            raise SparkSetupError("; ".join(problems))
        is_there = any(name.startswith(_DELTA_ARTIFACT) for name in brought_deltas(settings.get(_PACKAGES)))
        return None if is_there or delta_version == PROVIDED else delta_package(delta_version)
    if problems := own_delta_problems(own_spark, brought, delta_version):
        raise SparkSetupError("; ".join(problems))
    if delta_version == PROVIDED or brought_deltas(*brought) or own_spark.included_delta():
        return None
    return own_spark.delta_package(delta_version)


def _properties_text(properties_file: str | None, own_spark: OwnSpark | None, env: Mapping[str, str]) -> str:
    home = bundled_spark_home() if own_spark is None else own_spark.home
    return properties_text(properties_file, home, {**os.environ, **env})
