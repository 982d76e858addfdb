"""The image and the services of `docker/compose.yaml`, run: `make docker-test`. The tests follow one another."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from airflow_client import AirflowClient
from deltalake import DeltaTable

from tests.docker.conftest import read, wait_for
from tests.docker.services import USER, run

pytestmark = pytest.mark.timeout(1500)

ROOT = Path(__file__).parents[2]
AIRFLOW = ("api-server", "scheduler", "dag-processor", "triggerer")
SPARK = ("spark-master", "spark-worker-1", "spark-worker-2")


def ids(composition, table):
    return sorted(DeltaTable(composition.volume("lake") / table).to_pyarrow_table().column("id").to_pylist())


def shown_command(name):
    """The SQL command that the page shows for a service, without Compose."""
    page = (ROOT / "docs" / "docker.md").read_text(encoding="utf-8")
    shown = re.search(rf"^\$ docker compose exec {name} (spark-sql .*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    return shown.replace("\\\n", " ").strip()


def test_the_image_runs_as_a_user_has_no_build_tools_and_each_jar_once(composition, image):
    name = "spark-master"
    assert composition.exec(name, "id", "-u").strip() == str(USER)
    tools = "gcc cc make javac uv debootstrap"
    assert composition.exec(name, "sh", "-c", f"command -v {tools} || true") == ""
    found = composition.exec(name, "find", "-L", "/cache", "/opt/fds", "/home/fds", "-name", "delta-*.jar").splitlines()
    assert sorted(Path(path).parent.as_posix() for path in found) == ["/cache/jars", "/cache/jars"]
    assert composition.exec(name, "sh", "-c", "ls /jars/*.jar").count(".jar") == 2
    facts = json.loads(run("buildah", "inspect", "--type", "image", image))
    assert facts["Docker"]["config"]["User"] == "fds"
    sizes = [
        one["size"]
        for one in json.loads(run("buildah", "images", "--json"))
        if f"{image}:latest" in (one["names"] or [])
    ]
    print(f"\nsize of the image: {sizes[0]}, in MiB:")
    print(composition.exec(name, "sh", "-c", "du -xm --max-depth=2 / 2>/dev/null | sort -rn | head -12"))


def test_the_services_of_spark_and_airflow_start_as_they_stand_in_the_file(composition):
    for name in SPARK:
        composition.start(name)
    composition.start("airflow-init")
    assert composition.services["airflow-init"].process.wait(300) == 0, composition.said("airflow-init")
    for name in AIRFLOW:
        composition.start(name)
    master = f"http://{composition.addresses['spark-master']}:8081/json/"
    wait_for(lambda: json.loads(read(master))["aliveworkers"] == 2, 300, composition)

    def is_healthy():
        health = json.loads(read("http://127.0.0.1:8080/api/v2/monitor/health"))
        return all(
            (health.get(part) or {}).get("status") == "healthy"
            for part in ("metadatabase", "scheduler", "dag_processor", "triggerer")
        )

    wait_for(is_healthy, 600, composition)


def test_the_standalone_cluster_loads_a_table_once_by_a_dag_of_the_examples(composition):
    command = shown_command("scheduler")
    composition.exec("scheduler", "sh", "-c", command, seconds=600)
    assert ids(composition, "orders") == list(range(100))

    said = wait_for(
        lambda: re.search(r"Password for user 'admin': (\S+)", composition.said("api-server")), 60, composition
    )
    client = AirflowClient("http://127.0.0.1:8080", ("admin", said[1]))
    wait_for(lambda: client.has_dag("orders_to_bronze"), 300, composition)
    client.unpause("orders_to_bronze")

    def is_loaded():
        for run_ in client.runs("orders_to_bronze"):
            task = client.tasks("orders_to_bronze", run_["dag_run_id"]).get("ingest", {})
            assert task.get("state") not in ("failed", "up_for_retry"), composition.task_log("ingest")
            if task.get("state") == "success":
                return client.xcom("orders_to_bronze", run_["dag_run_id"], "ingest")
        return None

    assert wait_for(is_loaded, 900, composition)
    assert ids(composition, "bronze/orders") == list(range(100))
    master = json.loads(read(f"http://{composition.addresses['spark-master']}:8081/json/"))
    assert [app["state"] for app in master["completedapps"]] == ["FINISHED"]


def test_the_connect_server_loads_the_table_once_through_the_connection_of_the_file(composition):
    composition.start("spark-connect")

    def listens():
        with socket.create_connection(("127.0.0.1", 15002), timeout=5):
            return True

    wait_for(listens, 300, composition)
    dags = composition.volume("airflow") / "more_dags"
    dags.mkdir()
    example = ROOT / "airflow_provider_fds" / "example_dags" / "orders_cron.py"
    text = example.read_text(encoding="utf-8")
    assert text.count('conn_id="spark_default"') == 1
    (dags / "orders_cron.py").write_text(text.replace('conn_id="spark_default"', 'conn_id="spark_connect"'))
    said = composition.exec(
        *("scheduler", "airflow", "dags", "test", "orders_cron"),
        environment={"AIRFLOW__CORE__DAGS_FOLDER": "/airflow/more_dags"},
        seconds=900,
    )
    assert "state=success" in said, said[-4000:]
    assert ids(composition, "cron/orders") == list(range(100))


def test_every_service_stops_when_asked_to(composition):
    running = [name for name, service in composition.services.items() if name != "airflow-init"]
    assert len(running) == len(AIRFLOW) + len(SPARK) + 1
    assert [name for name in running if composition.services[name].process.poll() is not None] == []
    for name in reversed(running):
        print(f"{name} ended after {composition.stop(name, 60):.1f} s")
