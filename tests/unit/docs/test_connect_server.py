"""The systemd unit and the Kubernetes manifest for a Spark Connect server: right in form, with commands that exist."""

from __future__ import annotations

import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from airflow_provider_fds.cli.main import parser

FOLDER = Path(__file__).parents[3] / "docs" / "connect_server"


@pytest.fixture
def unit():
    found = ConfigParser(interpolation=None)
    found.optionxform = str
    found.read_string((FOLDER / "fds-connect.service").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def manifest():
    found = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text(encoding="utf-8")))
    assert [one["kind"] for one in found] == ["Deployment", "Service", "NetworkPolicy"]
    return found


def server_of(deployment):
    (server,) = deployment["spec"]["template"]["spec"]["containers"]
    return server


def parsed(words):
    program, *rest = words
    assert program.rpartition("/")[2] == "fds"
    return parser().parse_args(rest)


def test_the_commands_of_the_unit_are_commands_of_fds(unit):
    service = unit["Service"]
    assert parsed(shlex.split(service["ExecStartPre"])).command.__name__ == "prepare"
    given = parsed(shlex.split(service["ExecStart"]))
    assert (given.command.__name__, given.bind, given.port) == ("connect_server", "127.0.0.1", 15002)


def test_the_unit_is_of_a_user_and_ends_the_server_by_its_command(unit):
    service = unit["Service"]
    assert unit.sections() == ["Unit", "Service", "Install"]
    assert service["User"] not in ("", "root")
    # first the command, which ends its JVM; arguments that are wrong are wrong at the next start, too
    assert (service["KillMode"], service["RestartPreventExitStatus"]) == ("mixed", "2")
    assert int(service["TimeoutStopSec"]) > 30


def test_the_command_of_the_deployment_is_one_of_fds_and_the_probes_ask_its_port(manifest):
    deployment, service, policy = manifest
    server = server_of(deployment)
    given = parsed(server["command"])
    (port,) = server["ports"]
    assert (given.command.__name__, given.bind, given.port) == ("connect_server", "0.0.0.0", port["containerPort"])
    assert all(server[probe]["tcpSocket"]["port"] == port["name"] for probe in ("startupProbe", "readinessProbe"))
    assert service["spec"]["ports"] == [{"name": port["name"], "port": given.port, "targetPort": port["name"]}]
    (admitted,) = policy["spec"]["ingress"]
    assert admitted["ports"] == [{"port": given.port}]
    assert admitted["from"]


def test_service_and_policy_are_for_the_one_pod_of_the_deployment(manifest):
    deployment, service, policy = manifest
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert policy["spec"]["podSelector"]["matchLabels"] == labels


def test_the_pod_needs_no_root_and_no_right_in_the_cluster(manifest):
    pod = manifest[0]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["automountServiceAccountToken"] is False
    allowed = server_of(manifest[0])["securityContext"]
    assert (allowed["allowPrivilegeEscalation"], allowed["capabilities"]) == (False, {"drop": ["ALL"]})
    assert pod["terminationGracePeriodSeconds"] > 30


def test_the_memory_of_the_pod_is_above_that_of_the_jvm(manifest):
    server = server_of(manifest[0])
    heap = int(parsed(server["command"]).driver_memory.removesuffix("g"))
    assert int(server["resources"]["limits"]["memory"].removesuffix("Gi")) > heap
