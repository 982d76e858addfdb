"""The examples of ``dags/services``: what a service is asked to start, and that a second try asks for the same job.

Livy and Databricks are servers here that start what the request says with a local Spark. The others only record it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_provider_fds.spark import spark_conf
from airflow_provider_fds.spark.installation.install import bundled_spark_home
from airflow_provider_fds.spark.installation.jars import delta_jars
from airflow_provider_fds.spark.submission.driver_zip import driver_zip
from tests.interop import quick_spark
from tests.services.conftest import EXAMPLES, LostAnswerError

TOKEN = re.compile(r"fds-[0-9a-f]{32}")
NAMES = ("databricks", "dataproc", "emr", "emr_serverless", "kubernetes", "livy")


def spark_submit(file, args, conf, py_files=()):
    """Run what a request says, with a Python that has neither FDS nor Airflow, and return the exit code.

    The JARs are those of this machine's Spark, not the packages that the example names for the service's Spark.
    """
    home = bundled_spark_home()
    conf = {name: value for name, value in conf.items() if name != "spark.jars.packages"}
    conf |= {**quick_spark.INTERPRETED, **quick_spark.SMALL_LOGS, "spark.driver.extraJavaOptions": quick_spark.JVM}
    words = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--jars", ",".join(map(str, delta_jars()))]
    words += ["--py-files", ",".join(py_files)] if py_files else []
    words += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    environment = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(
        [*words, file, *args],
        cwd="/",
        env={**environment, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    print(ran.stdout[-3000:], ran.stderr[-3000:])
    return ran.returncode


def test_a_python_without_fds_runs_the_jobs():
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    words = [python, "-c", "import airflow_provider_fds"]
    ran = subprocess.run(words, cwd="/", env={}, capture_output=True, text=True, check=False)
    assert "No module named" in ran.stderr


def test_every_service_has_an_example_that_a_scan_of_the_folder_leaves_out(example):
    found = sorted(path.stem.removeprefix("orders_on_") for path in (EXAMPLES / "services").glob("*.py"))
    assert tuple(found) == NAMES
    assert "services/" in (EXAMPLES / ".airflowignore").read_text().splitlines()
    for name in NAMES:
        assert [task.task_id for task in example(name).roots] == ["plan"]


@pytest.mark.timeout(400)
def test_livy_starts_the_job_that_the_request_names_and_a_lost_worker_finds_its_batch(
    example, installation, lake, service, monkeypatch
):
    from airflow.providers.apache.livy.operators.livy import LivyOperator

    monkeypatch.setenv(
        "AIRFLOW_CONN_LIVY_DEFAULT",
        json.dumps({"conn_type": "livy", "schema": "http", "host": "127.0.0.1", "port": service.port}),
    )
    asked, started = [], []
    pool = ThreadPoolExecutor(1)

    def answer(method, path, body):
        if method == "POST":
            assert path == "/batches"
            asked.append(body)
            started.append(pool.submit(spark_submit, body["file"], body["args"], body["conf"], body["pyFiles"]))
            return 201, {"id": 7, "state": "running"}
        if path.startswith("/batches/7/log"):
            return 200, {"id": 7, "from": 0, "total": 0, "log": []}
        state = ("dead" if started[0].result() else "success") if started[0].done() else "running"
        return 200, {"id": 7, "state": state, "appId": None}

    service.answer = answer
    dag = example("livy")
    dag.get_task("load")._polling_interval = 1
    polls = LivyOperator.poll_until_complete
    lost = []

    def lose_the_first(self, *args, **kwargs):
        if not lost:
            lost.append(True)
            raise RuntimeError("the worker is lost")
        return polls(self, *args, **kwargs)

    monkeypatch.setattr(LivyOperator, "poll_until_complete", lose_the_first)
    run = installation.run(dag)
    pool.shutdown()

    assert set(run.states.values()) == {"success"}
    assert (lake.ids("livy/orders"), run.xcom("commit")["rows"]) == ([1, 2], 2)
    (body,) = asked
    assert TOKEN.fullmatch(body["name"])
    assert body["name"] == run.xcom("plan", "token")
    assert (body["file"], body["args"]) == (f"{lake.uri}/code/load_orders.py", [f"{lake.uri}/livy/orders"])
    assert body["conf"].items() >= {**spark_conf(), "spark.fds.batch": run.xcom("plan", "batch")}.items()
    check_modules(body["pyFiles"], run)


def check_modules(uris, run):
    assert uris == [run.xcom("plan", "py_files")]
    (uri,) = uris
    assert "/staging/.drivers/" in uri
    assert Path(uri.removeprefix("file://")).read_bytes() == driver_zip().read_bytes()


@pytest.mark.timeout(400)
def test_databricks_gets_the_same_token_again_when_the_answer_is_lost_and_runs_one_job(
    example, installation, lake, service, monkeypatch
):
    host = "127.0.0.1"
    conn = {"conn_type": "databricks", "host": host, "port": service.port, "schema": "http", "password": "token"}
    monkeypatch.setenv("AIRFLOW_CONN_DATABRICKS_DEFAULT", json.dumps(conn))
    asked, runs = [], {}
    pool = ThreadPoolExecutor(1)

    def answer(method, path, body):
        if method == "POST":
            asked.append(body)
            task = body["spark_python_task"]
            delta = {name: spark_conf()[name] for name in ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")}
            conf = {**body["new_cluster"]["spark_conf"], **delta}
            is_new = body["idempotency_token"] not in runs
            if is_new:
                job = pool.submit(spark_submit, task["python_file"], task["parameters"], conf)
                runs[body["idempotency_token"]] = job
                raise LostAnswerError
            return 200, {"run_id": 7}
        (job,) = runs.values()
        state = {"life_cycle_state": "RUNNING", "state_message": ""}
        if job.done():
            result = "FAILED" if job.result() else "SUCCESS"
            state = {"life_cycle_state": "TERMINATED", "result_state": result, "state_message": ""}
        return 200, {"run_id": 7, "job_id": 3, "run_page_url": f"http://{host}/#run/7", "state": state}

    service.answer = answer
    dag = example("databricks")
    dag.get_task("load").databricks_retry_limit = 1
    dag.get_task("load").polling_period_seconds = 1
    run = installation.run(dag)
    pool.shutdown()

    assert set(run.states.values()) == {"success"}
    assert lake.ids("databricks/orders") == [1, 2]
    assert [body["idempotency_token"] for body in asked] == [run.xcom("plan", "token")] * 2
    assert asked[0] == asked[1]


def lose_first_answer(monkeypatch, lost, outcomes):
    """Let the first answer to ``lost`` not arrive, and the states of jobs be the given ones; return what is asked."""
    from botocore.client import BaseClient
    from botocore.exceptions import EndpointConnectionError

    asked, real = [], BaseClient._make_api_call

    def call(self, operation, arguments):
        found = real(self, operation, arguments)
        if operation == lost:
            asked.append(arguments)
            if len(asked) == 1:
                raise EndpointConnectionError(endpoint_url="http://127.0.0.1")
        if operation in outcomes:
            outcomes[operation](found)
        return found

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps({"conn_type": "aws", "extra": {"region_name": REGION}}))
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    return asked


REGION = "eu-west-1"


def check_only_recorded(run):
    """The commit finds out that nothing has loaded the batch."""
    assert (run.state("load"), run.state("commit")) == ("success", "failed")


def test_emr_gets_one_step_with_the_plans_token_as_its_name(example, installation, lake, monkeypatch):
    import boto3
    from moto import mock_aws

    asked = lose_first_answer(
        monkeypatch,
        "AddJobFlowSteps",
        {"DescribeStep": lambda found: found["Step"]["Status"].update(State="COMPLETED")},
    )
    dag = example("emr")
    with mock_aws():
        made = boto3.client("emr").run_job_flow(
            Name="c",
            Instances={"InstanceCount": 1, "MasterInstanceType": "m5.xlarge", "KeepJobFlowAliveWhenNoSteps": True},
        )
        dag.get_task("load").job_flow_id = dag.get_task("loaded").job_flow_id = made["JobFlowId"]
        run = installation.run(dag)

    check_only_recorded(run)
    steps = [step for request in asked for step in request["Steps"]]
    assert [step["Name"] for step in steps] == [run.xcom("plan", "token")] * 2
    words = steps[0]["HadoopJarStep"]["Args"]
    assert words == steps[1]["HadoopJarStep"]["Args"]
    assert words[-2:] == [f"{lake.uri}/code/load_orders.py", f"{lake.uri}/emr/orders"]
    assert f"spark.fds.batch={run.xcom('plan', 'batch')}" in words
    check_modules([words[words.index("--py-files") + 1]], run)


def test_emr_serverless_gets_the_same_client_token_again(example, installation, lake, monkeypatch):
    import boto3
    from moto import mock_aws

    asked = lose_first_answer(
        monkeypatch, "StartJobRun", {"GetJobRun": lambda found: found["jobRun"].update(state="SUCCESS")}
    )
    dag = example("emr_serverless")
    with mock_aws():
        client = boto3.client("emr-serverless")
        application = client.create_application(releaseLabel="emr-7.5.0", type="SPARK")["applicationId"]
        client.start_application(applicationId=application)
        dag.get_task("load").application_id = application
        run = installation.run(dag)

    check_only_recorded(run)
    assert [request["clientToken"] for request in asked] == [run.xcom("plan", "token")] * 2
    assert asked[0] == asked[1]
    job = asked[0]["jobDriver"]["sparkSubmit"]
    assert job["entryPoint"] == f"{lake.uri}/code/load_orders.py"
    arguments = [f"{lake.uri}/emr_serverless/orders", "--fds-batch", run.xcom("plan", "batch")]
    assert job["entryPointArguments"] == arguments
    assert f"--conf spark.submit.pyFiles={run.xcom('plan', 'py_files')}" in job["sparkSubmitParameters"]


def test_dataproc_gets_the_same_job_id_and_request_id_again(example, installation, lake, monkeypatch):
    import grpc
    from airflow.providers.google.cloud.hooks.dataproc import DataprocHook
    from google.cloud.dataproc_v1 import GetJobRequest, Job, JobControllerClient, JobStatus, SubmitJobRequest
    from google.cloud.dataproc_v1.services.job_controller.transports import JobControllerGrpcTransport

    asked = []

    def submit(request, context):
        asked.append(request)
        if len(asked) == 1:
            context.abort(grpc.StatusCode.INTERNAL, "the answer is lost")
        return Job(reference=request.job.reference)

    def get(request, _):
        return Job(reference={"job_id": request.job_id}, status={"state": JobStatus.State.DONE})

    methods = {
        name: grpc.unary_unary_rpc_method_handler(call, kind.deserialize, Job.serialize)
        for name, call, kind in (("SubmitJob", submit, SubmitJobRequest), ("GetJob", get, GetJobRequest))
    }
    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.method_handlers_generic_handler("google.cloud.dataproc.v1.JobController", methods)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    client = JobControllerClient(transport=JobControllerGrpcTransport(channel=channel))
    monkeypatch.setattr(DataprocHook, "get_job_client", lambda *_, **__: client)
    monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps({"conn_type": "google_cloud_platform"}))
    try:
        run = installation.run(example("dataproc"))
    finally:
        channel.close()
        server.stop(None).wait()

    check_only_recorded(run)
    token = run.xcom("plan", "token")
    assert [(each.request_id, each.job.reference.job_id) for each in asked] == [(token, token)] * 2
    job = asked[0].job.pyspark_job
    assert job == asked[1].job.pyspark_job
    assert job.main_python_file_uri == f"{lake.uri}/code/load_orders.py"
    assert list(job.args) == [f"{lake.uri}/dataproc/orders", "--fds-batch", run.xcom("plan", "batch")]
    assert dict(job.properties).items() >= spark_conf().items()
    check_modules(list(job.python_file_uris), run)


def test_kubernetes_refuses_a_second_application_of_the_same_name(example, installation, lake, service, monkeypatch):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{service.port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    conn = {"conn_type": "kubernetes", "extra": {"kube_config": json.dumps(config)}}
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps(conn))
    asked, applications = [], {}

    def answer(method, path, body):
        if method == "POST":
            assert path.endswith("/namespaces/spark/sparkapplications")
            asked.append(body)
            name = body["metadata"]["name"]
            if name in applications:
                return 409, {"kind": "Status", "status": "Failure", "reason": "AlreadyExists", "code": 409}
            applications[name] = body
            raise LostAnswerError
        return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}

    service.answer = answer
    run = installation.run(example("kubernetes"))

    assert (run.state("load"), run.state("commit")) == ("failed", "upstream_failed")
    ((name, body),) = applications.items()
    assert len(asked) > 1
    assert {each["metadata"]["name"] for each in asked} == {name} == {run.xcom("plan", "token")}
    spec = body["spec"]
    assert spec["mainApplicationFile"] == f"{lake.uri}/code/load_orders.py"
    assert spec["arguments"] == [f"{lake.uri}/kubernetes/orders", "--fds-batch", run.xcom("plan", "batch")]
    assert spec["sparkConf"].items() >= spark_conf().items()
    check_modules(spec["deps"]["pyFiles"], run)
