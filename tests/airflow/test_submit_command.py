"""The command that reaches a cluster: everything of the user's, nothing secret."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream
from airflow_provider_fds.backends.base import UserArguments
from airflow_provider_fds.backends.spark_master import SparkMaster, check_master, prepare_submission, submitted
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.operators.task.submit_hook import MOST_LINES, SubmitHook, bounded
from airflow_provider_fds.spark.submission.object_store import JobStorage

SECRETS = {"spark.hadoop.fs.s3a.secret.key": "s3cr3t\\n", "spark.hadoop.fs.s3a.access.key": "AKIA"}


@pytest.fixture
def submitting(airflow_database, monkeypatch, tmp_path, spark_on_path):
    """Return an operator whose hook is ready to submit to a cluster, with a spark-submit of the cluster's own."""

    spark_on_path(name="spark3-submit")

    @contextmanager
    def make(host, extra, **arguments):
        # needed by the hook to ask Kubernetes, not to put a command together
        monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
        monkeypatch.setenv(
            "AIRFLOW_CONN_CLUSTER",
            json.dumps({"conn_type": "spark", "host": host, "extra": {"spark-binary": "spark3-submit", **extra}}),
        )
        operator = DeltaIngestOperator(
            task_id="load",
            stream=DeltaStream("orders", table="s3://lake/orders"),
            sink=DeltaAppendSink("s3://lake/bronze"),
            conn_id="cluster",
            name="fds-orders",
            **arguments,
        )
        backend = operator.find_spark("cluster")
        backend.check()
        master, given = backend.master, backend.arguments
        made = prepare_submission(master, "s3a://staging/x.job.json", given=given, storage=JobStorage(), cache_dir=None)
        with submitted(master, made, tmp_path) as final:
            operator._set_submission(final)
            yield operator, operator._get_hook()

    return make


@pytest.mark.parametrize(
    ("host", "extra", "conf", "expected"),
    [
        (
            "yarn",
            {"deploy-mode": "cluster", "queue": "etl"},
            {"spark.yarn.maxAppAttempts": "1"},
            "spark.yarn.maxAppAttempts=1",
        ),
        (
            "k8s://https://api:6443",
            {"deploy-mode": "cluster", "namespace": "etl"},
            {"spark.kubernetes.container.image": "spark:4.2.0"},
            "spark.kubernetes.container.image=spark:4.2.0",
        ),
    ],
)
def test_the_command_of_a_cluster_is_this(submitting, host, extra, conf, expected):
    arguments = {"conf": {**conf, **SECRETS}, "executor_memory": "4g", "num_executors": 3}
    with submitting(host, extra, env_vars={"TZ": "UTC"}, **arguments) as (operator, hook):
        command = hook._build_spark_submit_command(operator.application)
        file = Path(command[command.index("--properties-file") + 1])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert (
            file.read_text()
            == f"{expected}\n" + "spark.hadoop.fs.s3a.secret.key=s3cr3t\\\\n\nspark.hadoop.fs.s3a.access.key=AKIA\n"
        )
    assert not file.exists()

    assert command[:3] == ["spark3-submit", "--master", host]
    text = " ".join(command)
    assert "s3cr3t" not in text
    assert "AKIA" not in text
    assert expected not in text
    for words in (
        ["--conf", "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"],
        ["--conf", "spark.sql.files.ignoreMissingFiles=false"],
        ["--jars", operator.jars],
        ["--py-files", operator.py_files],
        ["--num-executors", "3"],
        ["--executor-memory", "4g"],
        ["--name", "fds-orders"],
        ["--deploy-mode", "cluster"],
        ["--load-spark-defaults", operator.application, "s3a://staging/x.job.json"],
    ):
        assert " ".join(words) in text
    assert command[-2:] == [operator.application, "s3a://staging/x.job.json"]
    assert "delta-spark" in operator.jars
    environment = "spark.yarn.appMasterEnv.TZ=UTC" if host == "yarn" else "spark.kubernetes.driverEnv.TZ=UTC"
    assert ["--conf", environment] == command[command.index(environment) - 1 :][:2]
    own = {"yarn": "--queue etl", "k8s://https://api:6443": "--conf spark.kubernetes.namespace=etl"}
    assert own[host] in text


def test_the_page_of_an_application_on_yarn_is_known_where_the_connection_names_yarns_pages(submitting):
    with submitting("yarn", {"yarn_resourcemanager_webapp_address": "http://rm:8088/"}) as (operator, hook):
        backend = operator.find_spark("cluster")
        assert backend.links() == {}
        operator._hook = hook
        hook._yarn_application_id = "application_1_0001"
        assert backend.links() == {"YARN application": "http://rm:8088/cluster/app/application_1_0001"}


@pytest.mark.parametrize(
    ("host", "lines", "application"),
    [
        ("yarn", ["Submitted application application_1_0001"], "application_1_0001"),
        ("spark://host:7077", ["starting", "FDS Spark application: app-20261123-0001"], "app-20261123-0001"),
    ],
)
def test_the_page_in_sparks_history_is_known_where_a_template_names_it(
    submitting, monkeypatch, caplog, host, lines, application
):
    with submitting(host, {"deploy-mode": "cluster" if host == "yarn" else "client"}) as (operator, hook):
        backend = operator.find_spark("cluster")
        operator._hook = hook
        hook._process_spark_submit_log(iter(lines))
        assert backend.links() == {}
        monkeypatch.setenv("AIRFLOW__FDS__SPARK_HISTORY_URL_TEMPLATE", "https://history/history/{application}/jobs/")
        assert backend.links() == {"Spark history": f"https://history/history/{application}/jobs/"}
        monkeypatch.setenv("AIRFLOW__FDS__SPARK_HISTORY_URL_TEMPLATE", "history/{app}")
        assert backend.links() == {}
        assert "spark_history_url_template is 'history/{app}'" in caplog.text


def test_without_secrets_the_command_is_the_providers_own(submitting):
    with submitting("yarn", {}) as (_, hook):
        assert "--properties-file" not in hook._build_spark_submit_command("job.py")
        assert "--load-spark-defaults" not in hook._build_spark_submit_command("job.py")


def test_a_properties_file_of_the_users_is_kept_with_the_secrets_after_it(submitting, tmp_path):
    own = tmp_path / "own.conf"
    own.write_text("spark.a 1")
    with submitting("yarn", {}, conf=SECRETS, properties_file=str(own)) as (_, hook):
        command = hook._build_spark_submit_command("job.py")
        text = Path(command[command.index("--properties-file") + 1]).read_text()
    assert text.startswith("spark.a 1\nspark.hadoop.fs.s3a.secret.key=")
    assert "--load-spark-defaults" not in command


@pytest.mark.parametrize("master", ["yarn", "k8s://https://api:6443"])
def test_secrets_in_the_environment_are_refused_where_it_is_shown(master):
    backend = SparkMaster("cluster", master, "cluster", binary="spark-submit")
    given = UserArguments(env_vars={"AWS_SECRET_ACCESS_KEY": "x", "TZ": "UTC"})
    with pytest.raises(ConfigurationError, match=r"env_vars has AWS_SECRET_ACCESS_KEY: on .* as an argument"):
        check_master(backend, given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"conf": {"spark.hadoop.fs.s3a.secret.key": "x"}},
            r"conf has spark\.hadoop\.fs\.s3a\.secret\.key: on spark://",
        ),
        ({"env_vars": {"PGPASSWORD": "x", "TZ": "UTC"}}, "env_vars has PGPASSWORD: on spark://"),
        ({"keytab": "/a", "proxy_user": "b"}, "keytab, proxy_user cannot be given with deploy_mode 'cluster' on"),
    ],
)
def test_what_a_driver_in_a_standalone_cluster_cannot_have_or_would_show_is_refused(given, said):
    backend = SparkMaster("cluster", "spark://host:7077", "cluster", binary=None)
    with pytest.raises(ConfigurationError, match=said):
        check_master(backend, UserArguments(**given))


def test_a_log_without_end_is_cut_but_for_what_matters_and_its_end():
    said = [f"line {n}" for n in range(10 * MOST_LINES)]
    said[3 * MOST_LINES] = "FDS batch 3 written: 10 rows"
    kept = list(bounded(iter(said)))
    assert kept[:MOST_LINES] == said[:MOST_LINES]
    assert "FDS batch 3 written: 10 rows" in kept
    assert kept[-1] == said[-1]
    assert len(kept) < MOST_LINES + 300
    assert any("lines of spark-submit omitted" in line for line in kept)


def test_a_short_log_is_not_shortened():
    assert list(bounded(iter(["a", "b"]))) == ["a", "b"]


#: Stands for a JVM that has started a Python driver.
SUBMIT = """#!/bin/sh
{before}
sleep 300 &
echo "driver $!"
{after}
"""


@pytest.fixture
def hook_of(tmp_path, monkeypatch):
    """Return hooks that start a program instead of spark-submit, given the lines around the start of its driver."""

    def make(before="", after="", **arguments):
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin" / "spark-submit"
        program.write_text(SUBMIT.format(before=before, after=after))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
        monkeypatch.setenv("AIRFLOW_CONN_HERE", json.dumps({"conn_type": "spark", "host": "local"}))
        hook = SubmitHook.like(
            spark_submit.SparkSubmitHook(conn_id="here", env_vars={"MINE": "1"}, spark_binary="spark-submit"),
            **arguments,
        )
        noted, hook.heard = hook._noted, []

        def listen(lines):
            for line in noted(lines):
                hook.heard.append(line.strip())
                yield line

        hook._noted = listen
        return hook

    return make


def test_spark_submit_is_started_without_the_keys_of_airflow(monkeypatch, hook_of):
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", "HUSH")
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "HUSH")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    hook = hook_of("env | grep -E 'HUSH|MINE|REGION'", "exit 0")
    hook.submit("job.py")
    said = list(hook.heard)
    assert not any("HUSH" in line for line in said)
    assert {"MINE=1", "AWS_REGION=eu-west-1"} <= set(said)


def test_bytes_that_are_no_text_are_shown(hook_of):
    hook = hook_of(r"printf 'caf\351\n'")
    hook.submit("job.py")
    assert "caf\N{REPLACEMENT CHARACTER}" in hook.heard


def test_the_driver_of_a_jvm_that_is_gone_is_ended(hook_of):
    hook = hook_of(after="exit 137")
    with pytest.raises(AirflowException, match="137"):
        hook.submit("job.py")
    assert not is_running(hook)


def submission_of(hook):
    """Start a thread that submits and fails; return it once the driver is there."""

    def submit():
        with pytest.raises(AirflowException):
            hook.submit("job.py")

    task = threading.Thread(target=submit)
    task.start()
    until = time.monotonic() + 60
    while not any(line.startswith("driver") for line in hook.heard) and time.monotonic() < until:
        time.sleep(0.01)
    return task


def test_a_killed_task_ends_the_driver_too(hook_of):
    hook = hook_of(after="wait")
    task = submission_of(hook)
    assert is_running(hook)
    hook.on_kill()
    task.join(60)
    assert not is_running(hook)


def test_a_killed_task_ends_spark_submit_on_a_worker_that_has_no_command_yarn(hook_of, capsys):
    hook = hook_of(after="wait")
    task = submission_of(hook)
    # the base class would run `yarn application -kill`
    hook._yarn_application_id = "application_1_0001"
    hook.on_kill()
    task.join(60)
    assert not is_running(hook)
    said = capsys.readouterr()
    assert "no command to stop the application" in said.out + said.err


def is_running(hook):
    (line,) = (line for line in hook.heard if line.startswith("driver "))
    try:
        return psutil.Process(int(line.split()[1])).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_task_that_is_killed_before_it_starts_spark_starts_none(hook_of):
    hook = hook_of(was_killed=lambda: True)
    with pytest.raises(AirflowException, match="killed the task before"):
        hook.submit("job.py")
    assert hook._submit_sp is None


def test_a_task_that_is_killed_while_spark_starts_ends_it(hook_of):
    answers = iter([False, True])
    hook = hook_of(after="wait", was_killed=lambda: next(answers))
    with pytest.raises(AirflowException, match="Error code"):
        hook.submit("job.py")
