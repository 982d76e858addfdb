"""The files for Docker are right in form, and name only what is there. No Docker is needed, and none is run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from airflow_provider_fds.get_provider_info import get_provider_info
from tests.compose import FILE, command, compose

DOCKER = FILE.parent
ROOT = DOCKER.parent


def test_the_file_is_what_compose_takes():
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    checked = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stdout


def test_every_service_uses_declared_volumes_and_waits_for_services_that_there_are():
    parsed = compose()
    services = parsed["services"]
    for service in services.values():
        if "build" in service:
            assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        named = {volume.split(":")[0] for volume in service.get("volumes", []) if not volume.startswith(".")}
        assert named <= set(parsed["volumes"])
        assert set(service.get("depends_on", [])) <= set(services)
        for address in re.findall(r"//([a-z-]+)[:/\"]", str(service)):
            assert address in {*services, "localhost"}


def test_airflows_processes_are_those_of_the_stack_tests():
    script = ast.parse((ROOT / "scripts" / "airflow_stack.py").read_text(encoding="utf-8"))
    names = next(
        ast.literal_eval(node.value)
        for node in script.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "PROCESSES" and node.value is not None
    )
    services = {name for name, service in compose()["services"].items() if "airflow" in service["command"].split()}
    assert services == {*names, "airflow-init"}
    assert all(command(name, {}) == ["airflow", name] for name in names)
    assert command("airflow-init", {}) == ["airflow", "db", "migrate"]


def test_the_store_is_of_the_version_that_the_tests_run():
    assert compose()["services"]["store"]["image"] == f"motoserver/moto:{metadata.version('moto')}"


def test_the_connections_are_of_types_that_airflow_has():
    settings = compose()["services"]["scheduler"]["environment"]
    types = {re.search(r'"conn_type": "(\w+)"', text)[1] for key, text in settings.items() if "_CONN_" in key}
    assert types == {"spark", "spark_connect", "aws"}
    assert "fds" in get_provider_info()["config"]
    assert "staging" in get_provider_info()["config"]["fds"]["options"]


def test_a_connect_server_in_the_docs_is_started_in_the_same_way():
    said = (ROOT / "docs" / "backends.md").read_text(encoding="utf-8")
    shown = re.search(r"```text\n(spark-submit .*?)```", said, re.DOTALL)[1]
    assert set(shown.replace("\\\n", " ").split()) <= set(command("spark-connect", {}))


def test_every_file_the_image_copies_is_there():
    for sources in re.findall(r"^COPY (.+) \S+$", (DOCKER / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source


def test_ports_are_open_on_this_machine_only():
    published = [port for service in compose()["services"].values() for port in service.get("ports", [])]
    assert len(published) >= 3
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_nobody_is_an_admin_without_a_password_and_no_secret_is_in_the_file():
    settings = compose()["services"]["scheduler"]["environment"]
    assert settings["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] == "False"
    assert settings["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == "admin:admin"
    for name in ("AIRFLOW__API_AUTH__JWT_SECRET", "AIRFLOW__API__SECRET_KEY"):
        assert settings[name].startswith("${FDS_SECRET:?")
    assert "AIRFLOW__CORE__FERNET_KEY" not in settings


def test_the_connect_server_asks_for_a_token_and_listens_where_a_token_needs_no_tls():
    services = compose()["services"]
    server = services["spark-connect"]
    assert server["environment"]["SPARK_CONNECT_AUTHENTICATE_TOKEN"].startswith("${FDS_SECRET:?")
    assert "spark.connect.grpc.binding.address=127.0.0.1" in command("spark-connect", {})
    assert server["network_mode"] == "service:scheduler"
    assert "ports" not in server
    connection = services["scheduler"]["environment"]["AIRFLOW_CONN_SPARK_CONNECT"]
    assert '"host": "sc://localhost"' in connection
    assert '"password": "${FDS_SECRET:?' in connection


def test_the_image_runs_as_a_user_that_owns_its_folders():
    lines = (DOCKER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [number for number, line in enumerate(lines) if line.startswith("USER ")]
    assert [lines[number] for number in users] == ["USER fds"]
    assert any("chown fds /airflow /cache /jars /lake" in line for line in lines[: users[0]])
    assert "RUN fds prepare" in lines[users[0]:][3]
