"""The files for Docker are right in form, and name only what is there. `make docker-test` runs them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import metadata

import yaml

import airflow_provider_fds
from airflow_provider_fds.cli.main import parser
from airflow_provider_fds.get_provider_info import get_provider_info
from tests.compose import FILE, command, compose

DOCKER = FILE.parent
ROOT = DOCKER.parent


def test_the_file_is_a_valid_compose_file():
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    checked = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stdout


def test_every_service_uses_declared_volumes_and_waits_only_for_existing_services():
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


def test_every_file_that_the_image_copies_exists():
    for sources in re.findall(
        r"^COPY (?!--from)(.+) \S+$", (DOCKER / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    ):
        for source in sources.split():
            assert (ROOT / source).exists(), source


def test_ports_are_open_on_this_machine_only():
    published = [port for service in compose()["services"].values() for port in service.get("ports", [])]
    assert len(published) >= 3
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_no_user_is_an_admin_without_a_password_and_the_file_has_no_secret():
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
    program, *words = command("spark-connect", {})
    given = parser().parse_args(words)
    assert (program, given.command.__name__, given.bind, given.port) == ("fds", "connect_server", "127.0.0.1", 15002)
    assert server["network_mode"] == "service:scheduler"
    assert "ports" not in server
    connection = services["scheduler"]["environment"]["AIRFLOW_CONN_SPARK_CONNECT"]
    assert '"host": "sc://localhost"' in connection
    assert '"password": "${FDS_SECRET:?' in connection


def dockerfile():
    return (DOCKER / "Dockerfile").read_text(encoding="utf-8")


def test_the_image_runs_as_a_user_that_owns_its_folders():
    lines = dockerfile().rpartition("\nFROM ")[2].splitlines()
    (user,) = [number for number, line in enumerate(lines) if line.startswith("USER ")]
    assert lines[user] == "USER fds"
    assert any("install --directory --owner fds /airflow /cache /lake" in line for line in lines[:user])
    assert any("fds admin prepare" in line for line in lines[user:])
    mounted = {volume.split(":")[1] for volume in compose()["x-fds"]["volumes"]}
    assert mounted == {"/airflow", "/lake", "/dags"}


def test_build_tools_are_not_in_the_image():
    final = dockerfile().rpartition("\nFROM ")[2]
    assert final.startswith("java\n")
    assert not re.search(r"\b(pip|uv|ensurepip|apt-get)\b", final)
    assert re.findall(r"^COPY (.+)$", final, re.MULTILINE) == ["--from=build /opt/fds /opt/fds"]


def test_the_page_has_the_arguments_of_the_image_with_their_defaults():
    page = (ROOT / "docs" / "docker.md").read_text(encoding="utf-8")
    section = page.partition("## The image")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    said = {name: row[1].strip("`") for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    declared = dict(re.findall(r"^ARG (\w+)=?(.*)$", dockerfile(), re.MULTILINE))
    assert said == {name: default or "none" for name, default in declared.items()}
    assert (ROOT / declared["PINS"]).exists()


def test_the_image_has_the_versions_that_the_tests_run():
    def pins(name):
        text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
        return set(re.findall(r"^([a-z0-9._-]+==\S+)", text, re.MULTILINE))

    tested, image = pins("dev.txt"), pins("image.txt")
    assert image < tested
    assert {"apache-airflow", "pyspark", "delta-spark"} <= {pin.partition("==")[0] for pin in image}


def test_the_context_of_the_build_has_no_more_than_the_image_copies():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile(), re.MULTILINE)
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == set(" ".join(copied).split())


def test_the_values_for_the_chart_name_existing_settings_and_connections():
    values = yaml.safe_load((DOCKER / "helm-values.yaml").read_text(encoding="utf-8"))
    assert set(values["config"]["fds"]) <= set(get_provider_info()["config"]["fds"]["options"])
    assert values["airflowVersion"] == metadata.version("apache-airflow")
    assert values["images"]["airflow"]["tag"] == airflow_provider_fds.__version__
    for entry in values["secret"]:
        assert set(entry) == {"envName", "secretName", "secretKey"}
        assert entry["envName"].startswith("AIRFLOW_CONN_")
