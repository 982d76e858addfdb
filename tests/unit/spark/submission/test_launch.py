"""The command that starts Spark: what is in it for which master, and what a user's settings may change."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_fds.catalog.vended import VendedCredentials
from airflow_provider_fds.places import Place
from airflow_provider_fds.spark.installation import cache as cache_module
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.installation.install import bundled_spark_home, delta_package
from airflow_provider_fds.spark.installation.own_spark import OwnSpark
from airflow_provider_fds.spark.runtime.settings import BIG_JOB_BYTES, is_local_master, lean_conf
from airflow_provider_fds.spark.sessions.session_job import shell_arguments
from airflow_provider_fds.spark.submission.driver_zip import job_file
from airflow_provider_fds.spark.submission.launch import run_submission
from airflow_provider_fds.spark.submission.object_store import S3_LOG_STORE, JobStorage
from airflow_provider_fds.spark.submission.submit import merged_conf, submission, submit_arguments

EXTENSIONS = "spark.sql.extensions"
DELTA = "io.delta.sql.DeltaSparkSessionExtension"
JAVA_OPTIONS = "spark.driver.defaultJavaOptions"


OWN_SPARK = OwnSpark("spark-submit", "/opt/spark/bin/spark-submit", "4.2.0", "2.13")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache in which the JARs are already, so that nothing is resolved; what is in them is not looked at."""
    monkeypatch.setattr(cache_module, "PINNED", {})
    monkeypatch.setattr(cache_module, "PINNED_FOLDERS", {})
    _, artifact, version = delta_package().split(":")
    (tmp_path / "jars").mkdir()
    for name in (f"{artifact}-{version}.jar", f"delta-storage-{version}.jar"):
        (tmp_path / "jars" / name).write_bytes(b"jar")
    (tmp_path / "jars" / "hadoop-aws-3.5.0").mkdir()
    (tmp_path / "jars" / "hadoop-aws-3.5.0" / "hadoop-aws.jar").write_bytes(b"jar")
    (tmp_path / "jars" / "unitycatalog-hadoop-0.6.0").mkdir()
    (tmp_path / "jars" / "unitycatalog-hadoop-0.6.0" / "unity.jar").write_bytes(b"jar")
    return tmp_path


def conf_of(command):
    pairs = [command[i + 1] for i, word in enumerate(command) if word == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


def test_a_local_command_puts_the_jars_on_the_class_path(cache):
    arguments = submit_arguments("file:///s/1.json", master="local[2]", cache_dir=cache)
    command = arguments.command()
    assert command[0] == str(bundled_spark_home() / "bin" / "spark-submit")
    assert command[1:5] == ["--master", "local[2]", "--deploy-mode", "client"]
    assert "--jars" not in command
    class_path = command[command.index("--driver-class-path") + 1].split(":")
    assert sorted(class_path) == sorted(str(jar) for jar in (cache / "jars").glob("*.jar"))
    assert command[-2:] == [str(job_file()), "file:///s/1.json"]
    assert Path(command[command.index("--py-files") + 1]).is_file()
    assert arguments.env_vars["PYSPARK_PYTHON"] == sys.executable
    assert arguments.env_vars["SPARK_HOME"] == str(bundled_spark_home())


def test_a_large_job_on_a_local_master_uses_the_optimizing_compiler(cache):
    small = submit_arguments("x", master="local[2]", cache_dir=cache, num_bytes=BIG_JOB_BYTES - 1)
    big = submit_arguments("x", master="local[2]", cache_dir=cache, num_bytes=BIG_JOB_BYTES)
    assert "-XX:TieredStopAtLevel=1" in small.conf[JAVA_OPTIONS]
    assert "TieredStopAtLevel" not in big.conf[JAVA_OPTIONS]
    assert "-XX:+UseSerialGC" in big.conf[JAVA_OPTIONS]


def test_a_cluster_command_ships_the_jars_and_leaves_the_jvm_alone(cache):
    arguments = submit_arguments("s3://b/1.json", master="spark://host:7077", cache_dir=cache)
    command = arguments.command()
    assert "--driver-class-path" not in command
    assert len(command[command.index("--jars") + 1].split(",")) == 2
    options = conf_of(command)[JAVA_OPTIONS]
    assert "TieredStopAtLevel" not in options
    assert "SerialGC" not in options
    assert "spark.driver.host" not in conf_of(command)
    assert "SPARK_LOCAL_IP" not in arguments.env_vars
    assert conf_of(command)["spark.sql.warehouse.dir"] == f"file:{cache}/warehouse"


def test_a_command_of_cluster_mode_asks_nothing_of_the_cluster_that_only_this_machine_has(cache):
    arguments = submit_arguments("s3://b/1.json", master="yarn", deploy_mode="cluster", cache_dir=cache)
    assert arguments.env_vars == {}
    # started here, whether or not it is on PATH
    assert arguments.spark_binary == str(bundled_spark_home() / "bin" / "spark-submit")
    assert JAVA_OPTIONS not in arguments.conf


def test_a_spark_of_the_user_is_started_by_its_name(cache):
    arguments = submit_arguments("x", master="local", cache_dir=cache, own_spark=OWN_SPARK)
    assert (arguments.spark_binary, arguments.env_vars) == ("spark-submit", {})


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077", "yarn"])
def test_every_master_gets_the_common_settings(master):
    conf = lean_conf(master)
    assert conf[EXTENSIONS] == DELTA
    assert conf["spark.databricks.delta.snapshotPartitions"] == "1"
    assert conf["spark.ui.enabled"] == "false"
    assert conf["spark.sql.files.ignoreMissingFiles"] == "false"
    assert conf["spark.sql.files.ignoreCorruptFiles"] == "false"
    assert conf["spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"] == "false"
    assert "log4j2.properties" in conf[JAVA_OPTIONS]


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", True), ("local[*]", True), ("local[2,3]", True), ("local-cluster[2,1,512]", False), ("yarn", False)],
)
def test_local_masters_are_distinguished_from_others(master, expected):
    assert is_local_master(master) is expected


def test_the_users_settings_win_where_nothing_is_forced():
    conf = merged_conf(lean_conf("local"), {"spark.ui.enabled": True, "spark.driver.memory": "4g"})
    assert (conf["spark.ui.enabled"], conf["spark.driver.memory"]) == ("true", "4g")


def test_the_users_extensions_are_kept_beside_deltas():
    conf = merged_conf(lean_conf("local"), {EXTENSIONS: "com.example.Mine"})
    assert conf[EXTENSIONS] == f"com.example.Mine,{DELTA}"
    assert merged_conf(lean_conf("local"), {EXTENSIONS: DELTA})[EXTENSIONS] == DELTA


def test_the_users_garbage_collector_replaces_the_default_one():
    conf = merged_conf(lean_conf("local"), {"spark.driver.extraJavaOptions": "-XX:+UseG1GC -Dx=y"})
    assert "SerialGC" not in conf[JAVA_OPTIONS]
    assert "TieredStopAtLevel" in conf[JAVA_OPTIONS]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.files.ignoreMissingFiles", "true"),
        ("spark.sql.files.ignoreCorruptFiles", "TRUE"),
        ("spark.databricks.delta.history.metricsEnabled", "false"),
        ("spark.sql.execution.arrow.pythonUDF.columnarInput.enabled", "true"),
        ("spark.databricks.delta.write.txnAppId", "mine"),
        ("spark.databricks.delta.write.txnVersion", "7"),
    ],
)
def test_a_setting_that_would_lose_or_duplicate_rows_is_refused_by_name(key, value):
    with pytest.raises(SparkSetupError, match=key) as caught:
        merged_conf(lean_conf("local"), {key: value})
    assert str(value) in str(caught.value)
    assert "Remove it" in str(caught.value)


def test_all_settings_that_contradict_are_named_at_once():
    wrong = {"spark.sql.files.ignoreMissingFiles": "true", "spark.databricks.delta.write.txnVersion": "7"}
    with pytest.raises(SparkSetupError) as caught:
        merged_conf(lean_conf("local"), wrong)
    assert all(key in str(caught.value) for key in wrong)


def test_a_forced_setting_may_be_repeated():
    merged_conf(lean_conf("local"), {"spark.sql.files.ignoreMissingFiles": False})


SECRET = "word/+ of=nobody"
KEYS = {"access_key_id": "key", "secret_access_key": SECRET, "endpoint": "http://127.0.0.1:9000"}


def on_s3(*, commits=True):
    return JobStorage((Place("/orders", {}), Place("s3://lake/bronze", KEYS)), needs_log_store=commits)


def test_a_job_that_commits_on_s3_gets_the_log_store_in_the_class_loader_of_delta(cache):
    local = submit_arguments("x", master="local[2]", cache_dir=cache, storage=on_s3())
    names = [Path(jar).name for jar in local.driver_class_path.split(":")]
    assert names[2:] == ["hadoop-aws.jar", "fds-s3-log-store.jar"]
    assert "delta-spark" in names[0]
    assert local.jars is None
    assert local.conf["spark.delta.logStore.s3a.impl"] == S3_LOG_STORE

    cluster = submit_arguments("x", master="spark://host:7077", cache_dir=cache, storage=on_s3())
    assert [Path(jar).name for jar in cluster.jars.split(",")][2:] == ["fds-s3-log-store.jar"]
    assert cluster.conf["spark.jars.packages"] == "org.apache.hadoop:hadoop-aws:3.5.0"

    packages = {"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0"}
    own_delta = submit_arguments("x", master="local[2]", conf=packages, cache_dir=cache, storage=on_s3())
    assert own_delta.driver_class_path is None
    assert Path(own_delta.jars).name == "fds-s3-log-store.jar"
    assert own_delta.conf["spark.jars.packages"].endswith(",org.apache.hadoop:hadoop-aws:3.5.0")


def test_the_jars_that_ask_a_catalog_for_keys_are_there_where_spark_can_use_them(cache):
    keys = VendedCredentials(lambda: None)
    keys.hadoop = {"fs.unitycatalog.auth.token": "hidden"}
    storage = JobStorage((Place("s3://lake/orders", {"credential_provider": keys}), Place("/staging")))
    local = submit_arguments("x", master="local[2]", cache_dir=cache, storage=storage)
    assert [Path(jar).name for jar in local.driver_class_path.split(":")][2:] == ["hadoop-aws.jar", "unity.jar"]
    assert local.secret_conf == {"spark.hadoop.fs.unitycatalog.auth.token": "hidden"}
    assert "hidden" not in str(local.command()) + repr(local)
    cluster = submit_arguments("x", master="spark://host:7077", cache_dir=cache, storage=storage)
    assert Path(cluster.jars.split(",")[-1]).name == "unity.jar"
    # S3A of Spark 3.5 takes no such provider
    older = replace(OWN_SPARK, version="3.5.6")
    made = submit_arguments(
        "x", master="yarn", cache_dir=cache, storage=storage, own_spark=older, delta_version="provided"
    )
    assert made.jars is None
    assert made.secret_conf == {}


def test_a_spark_of_the_user_has_its_s3_file_system_already(cache):
    made = submit_arguments("x", master="yarn", cache_dir=cache, storage=on_s3(), own_spark=OWN_SPARK)
    assert "spark.jars.packages" not in made.conf
    assert made.jars.endswith("fds-s3-log-store.jar")


@pytest.mark.parametrize(
    ("storage", "conf"),
    [
        (on_s3(commits=False), {}),
        (on_s3(), {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}),
        (on_s3(), {"spark.delta.logStore.class": "com.example.Mine"}),
    ],
)
def test_the_log_store_is_left_alone_where_it_is_not_needed_or_the_user_has_one(cache, storage, conf):
    made = submit_arguments("x", master="local[2]", conf=conf, cache_dir=cache, storage=storage)
    assert {key: value for key, value in made.conf.items() if "logStore" in key} == conf
    assert "fds-s3-log-store" not in made.driver_class_path


def test_secrets_are_in_a_file_for_this_user_alone_and_never_among_the_arguments(cache, monkeypatch):
    monkeypatch.setenv("SPARK_CONF_DIR", str(cache))
    (cache / "spark-defaults.conf").write_text("spark.eventLog.enabled  false\n")
    made = submit_arguments("x", master="local[2]", cache_dir=cache, storage=on_s3())
    assert SECRET not in repr(made)
    with submission(made, cache) as submitted:
        command = submitted.command()
        file = Path(command[command.index("--properties-file") + 1])
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
        text = file.read_text()
    assert not any(SECRET in word for word in command)
    assert f"spark.hadoop.fs.s3a.bucket.lake.secret.key={SECRET}\n" in text
    # the file stands in place of the defaults
    assert text.endswith("spark.eventLog.enabled  false\n")
    assert not file.exists()


def test_without_secrets_the_users_own_properties_file_is_passed_on_as_it_is(cache):
    made = submit_arguments("x", master="local[2]", cache_dir=cache, properties_file="/own.conf", storage=JobStorage())
    with submission(made, cache) as submitted:
        assert submitted.properties_file == "/own.conf"
    assert "/own.conf" in submitted.command()


def test_the_s3_settings_of_a_users_properties_file_are_kept(cache, tmp_path):
    own = tmp_path / "own.conf"
    own.write_text("# mine\nspark.hadoop.fs.s3a.aws.credentials.provider = com.example.Mine\n")
    made = submit_arguments("x", master="local[2]", cache_dir=cache, storage=on_s3(), properties_file=str(own))
    assert made.secret_conf == {}
    assert "spark.hadoop.fs.s3a.bucket.lake.aws.credentials.provider" not in made.conf
    assert made.conf["spark.hadoop.fs.s3a.bucket.lake.endpoint"] == KEYS["endpoint"]


def test_a_missing_properties_file_is_named(cache):
    with pytest.raises(SparkSetupError, match=r"/gone\.conf cannot be read: No such file"):
        submit_arguments("x", master="local", cache_dir=cache, storage=on_s3(), properties_file="/gone.conf")


def test_a_session_of_this_process_starts_like_spark_submit_without_an_application(cache):
    conf = {"spark.my.password": "hidden", "spark.app.word": "two words"}
    made = submit_arguments("file:///job.json", master="local[1]", conf=conf, cache_dir=cache)
    with submission(made, cache) as submitted:
        words = shlex.split(shell_arguments(submitted))
    assert words[:4] == ["--master", "local[1]", "--deploy-mode", "client"]
    assert words[-1] == "pyspark-shell"
    assert "--properties-file" in words
    assert not [word for word in words if "two words" in word]
    assert not [word for word in words if "hidden" in word or word in (str(job_file()), "file:///job.json")]


def test_jars_that_spark_fetches_are_named_at_once_and_the_rest_of_its_output_is_held_back(tmp_path, cache):
    submit = tmp_path / "spark-submit"
    submit.write_text(
        "#!/bin/sh\n"
        "echo ':: resolving dependencies'\n"
        "echo 'downloading https://ann:s3cr3t@repo/hadoop-aws-3.5.0.jar ...'\n"
        "echo 'FDS batch 0 written: 1 rows'\n"
    )
    submit.chmod(0o755)
    arguments = submit_arguments("x", master="local[2]", cache_dir=cache)
    lines = []
    assert run_submission(replace(arguments, spark_binary=str(submit)), lines.append) == 0
    assert lines == ["Spark is fetching https://***@repo/hadoop-aws-3.5.0.jar", "FDS batch 0 written: 1 rows"]
