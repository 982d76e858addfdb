"""What an API server of Kubernetes says, and what it is taken for.

What ``kubernetes_1_36.json`` has was recorded from a real API server (``tests/kubernetes_cluster.py``), for pods that
spark-submit 4.2 made. States that only a real kubelet or scheduler gives a pod (images, evictions, other containers)
are written after the documentation of Kubernetes, with what is read of a pod.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_fds.spark.clusters.cluster import ClusterError, DriverRequest, Handle, Look
from airflow_provider_fds.spark.clusters.kubernetes import KubernetesCluster
from airflow_provider_fds.spark.clusters.stored import from_dict, to_dict
from tests.answers import answering

NAME = "fds-20261129t063000-ab-0"
PATH = f"/api/v1/namespaces/spark/pods/{NAME}"
UID = "15e8f4de-5151-437a-b563-f180e1ca5296"


def refusal(code, reason, message, **details):
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return code, {**status, "reason": reason, "code": code, **({"details": details} if details else {})}


#: Status and answer by name.
RECORDED = {
    name: tuple(answer)
    for name, answer in json.loads(Path(__file__).with_name("kubernetes_1_36.json").read_text()).items()
}
MISSING, FORBIDDEN, UNAUTHORIZED = (RECORDED[name] for name in ("missing", "forbidden", "unauthorized"))


def pod(phase, state=None, *, name="spark-kubernetes-driver", label="", **status):
    """Return a pod without the parts that nobody reads."""
    metadata = {"name": NAME, "namespace": "spark", "uid": UID, "labels": {"fds-start": label, "spark-role": "driver"}}
    if state is not None:
        container = {"name": name, "ready": "running" in state, "restartCount": 0, "image": "x", "imageID": "x"}
        status["containerStatuses"] = [{**container, "state": state}]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "status": {"phase": phase, **status}}


def terminated(code, **more):
    return {"terminated": {"exitCode": code, "startedAt": "2026-11-29T15:20:41Z", **more}}


RUNNING = RECORDED["running"]
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient memory.",
}


@pytest.fixture
def cluster_of():
    """Return a cluster whose API server gives answers, what it was asked, and with which headers."""
    servers = []

    def make(*answers, **options):
        headers = []
        server, asked = answering(answers, headers)
        servers.append(server)
        cluster = KubernetesCluster(f"http://127.0.0.1:{server.server_port}", "spark", **options)
        return cluster, asked, headers

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def looked(cluster):
    return cluster.look(Handle(cluster.address, NAME))


def request(submit):
    return DriverRequest("fds", "job.py", (), {}, {}, claim="20261129T063000_AB", submit=submit)


@pytest.mark.parametrize(
    ("answer", "look"),
    [
        (RECORDED["pending"], Look("running", words="Pending")),
        (
            pod("Pending", conditions=[UNSCHEDULABLE]),
            Look("running", words="Pending: Unschedulable: 0/3 nodes are available: 3 Insufficient memory."),
        ),
        (
            pod("Pending", {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}),
            Look("running", words='Pending: ImagePullBackOff: Back-off pulling image "x"'),
        ),
        (RUNNING, Look("running", words="Running")),
        (RECORDED["succeeded"], Look("ended", words="Succeeded")),
        (RECORDED["failed"], Look("ended", has_failed=True, words="Failed: exit code 12")),
        (
            pod("Failed", terminated(137, reason="OOMKilled")),
            Look("ended", has_failed=True, words="Failed: exit code 137: OOMKilled"),
        ),
        (
            pod("Failed", reason="Evicted", message="The node was low on resource: memory. "),
            Look("ended", has_failed=True, words="Failed: Evicted: The node was low on resource: memory."),
        ),
        # another container of the pod goes on
        (pod("Running", terminated(0, reason="Completed")), Look("ended", words="Succeeded")),
        (
            pod("Running", terminated(1, reason="Error")),
            Look("ended", has_failed=True, words="Failed: exit code 1"),
        ),
        (MISSING, Look("ended", has_failed=True, words="its pod was deleted")),
        (pod("Unknown"), Look("unknown", words="Unknown")),
        (RECORDED["deleting"], Look("unknown", words="Running: it is being deleted")),
    ],
)
def test_each_state_is_running_ended_or_unknown(cluster_of, answer, look):
    cluster, asked, _ = cluster_of(answer)
    assert looked(cluster) == look
    assert asked == [("GET", PATH, None)]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (FORBIDDEN, 'HTTP 403, pods "fds-recorded-2" is forbidden: User "system:serviceaccount:spark:spark-driver"'),
        (UNAUTHORIZED, "HTTP 401, Unauthorized"),
        (
            refusal(404, "NotFound", "the server could not find the requested resource"),
            "HTTP 404, the server could not",
        ),
        ((503, b"upstream connect error"), "does not answer as Kubernetes' API server does"),
        ((404, {}), "HTTP 404, no reason given"),
        ({"kind": "Pod"}, "HTTP 200, no reason given"),
        ({"kind": "Pod", "status": {"phase": "Running"}}, "HTTP 200, no reason given"),
    ],
)
def test_an_api_server_that_does_not_tell_of_a_pod_does_not_say_that_it_ended(cluster_of, answer, words):
    found = looked(cluster_of(answer)[0])
    assert found.state == "unknown"
    assert words in found.words


def test_an_api_server_that_is_not_reached_says_nothing_of_its_drivers():
    cluster = KubernetesCluster("http://127.0.0.1:1", "spark")
    handle = Handle(cluster.address, NAME)
    assert cluster.look(handle).state == "unknown"
    assert "does not answer" in cluster.look(handle).words
    assert "does not answer" in (cluster.stop(handle) or "")
    assert cluster.last_lines(handle) == ()
    assert cluster.log_page(handle) == ""
    with pytest.raises(ClusterError, match="does not answer"):
        cluster.start(request(lambda _: None))


def test_a_driver_of_another_cluster_or_namespace_is_not_taken_for_one_that_was_deleted(cluster_of):
    cluster, asked, _ = cluster_of(MISSING)
    found = cluster.look(Handle("https://other:6443/api/v1/namespaces/spark", NAME))
    assert found.state == "unknown"
    assert found.words.startswith("it was started in https://other:6443/api/v1/namespaces/spark, but the connection")
    assert asked == []


def test_a_driver_gets_a_name_that_was_chosen_before_spark_submit_started(cluster_of):
    given = []
    cluster, asked, _ = cluster_of(MISSING)
    assert cluster.start(request(given.append)) == Handle(cluster.address, NAME)
    (settings,) = given
    assert len(settings.pop("spark.kubernetes.driver.label.fds-start")) == 32
    assert settings == {
        "spark.kubernetes.driver.pod.name": NAME,
        "spark.kubernetes.submission.waitAppCompletion": "false",
    }
    assert asked == [("GET", PATH, None)]


def test_a_name_is_a_dns_label_of_63_characters_at_most(cluster_of):
    cluster, asked, _ = cluster_of(MISSING)
    long = DriverRequest("fds", "job.py", (), {}, {}, claim="A" * 49 + "_" * 30, submit=lambda _: None)
    assert cluster.start(long).id == f"fds-{'a' * 49}-0"
    assert len(asked) == 1


def test_a_driver_of_the_claim_that_runs_is_found_and_the_name_of_one_that_has_ended_is_not_taken_again(cluster_of):
    given = []
    cluster, _, _ = cluster_of(RUNNING)
    assert cluster.start(request(given.append)).id == NAME
    assert given == []
    cluster, asked, _ = cluster_of(RECORDED["failed"], MISSING)
    assert cluster.start(request(given.append)).id == f"{NAME[:-1]}1"
    assert [path for _, path, _ in asked] == [PATH, f"{PATH[:-1]}1"]


def test_a_name_that_another_process_has_taken_meanwhile_is_that_of_its_driver(cluster_of):
    def refused(_):
        raise RuntimeError("spark-submit: 409")

    cluster, asked, _ = cluster_of(MISSING, pod("Running", label="other"))
    assert cluster.start(request(refused)).id == NAME
    assert [method for method, _, _ in asked] == ["GET", "GET"]


def test_what_a_spark_submit_that_is_killed_has_made_is_deleted_and_nothing_else(cluster_of):
    made = pod("Pending")

    def killed(settings):
        made["metadata"]["labels"]["fds-start"] = settings["spark.kubernetes.driver.label.fds-start"]
        raise KeyboardInterrupt

    cluster, asked, _ = cluster_of(MISSING, made, made)
    with pytest.raises(KeyboardInterrupt):
        cluster.start(request(killed))
    assert asked[2:] == [("DELETE", PATH, {"preconditions": {"uid": UID}})]


@pytest.mark.parametrize("error", [RuntimeError("refused"), KeyboardInterrupt()])
def test_a_spark_submit_that_has_made_nothing_has_failed(cluster_of, error):
    def failing(_):
        raise error

    cluster, asked, _ = cluster_of(MISSING)
    with pytest.raises(type(error)):
        cluster.start(request(failing))
    assert [method for method, _, _ in asked] == ["GET", "GET"]


def test_an_api_server_that_refuses_starts_no_driver(cluster_of):
    with pytest.raises(ClusterError, match=r"does not tell whether there is a pod .*-ab-0: pods .* is forbidden"):
        cluster_of(FORBIDDEN)[0].start(request(lambda _: None))


def test_a_pod_is_deleted_and_one_that_is_gone_is_no_error(cluster_of):
    cluster, asked, _ = cluster_of(RECORDED["delete"], MISSING, FORBIDDEN)
    handle = Handle(cluster.address, NAME)
    assert cluster.stop(handle) is None
    assert asked == [("DELETE", PATH, None)]
    assert cluster.stop(handle) is None
    assert "HTTP 403, pods" in (cluster.stop(handle) or "")


def test_the_last_lines_are_those_of_the_drivers_container(cluster_of):
    cluster, asked, _ = cluster_of(RECORDED["failed"], b"one\n\ntwo\n")
    assert cluster.last_lines(Handle(cluster.address, NAME)) == ("one", "two")
    assert asked[1] == ("GET", f"{PATH}/log?tailLines=60&container=spark-kubernetes-driver", None)
    own = pod("Failed", terminated(1), name="mine")
    cluster, asked, _ = cluster_of(own, refusal(400, "BadRequest", "container is not available"))
    assert cluster.last_lines(Handle(cluster.address, NAME)) == ()
    assert asked[1][1].endswith("&container=mine")


@pytest.mark.parametrize("content", [b"apiVersion: v1\ntoken: hush", b"hush \xff", b""])
def test_a_file_that_holds_no_token_is_named_and_not_shown(cluster_of, tmp_path, content):
    (tmp_path / "config").write_bytes(content)
    cluster, asked, _ = cluster_of(RUNNING, token_file=str(tmp_path / "config"))
    found = looked(cluster)
    assert found.state == "unknown"
    assert "hush" not in found.words
    assert f"{tmp_path}/config" in found.words
    assert asked == []


def test_a_token_is_read_from_its_file_for_each_request(cluster_of, tmp_path):
    file = tmp_path / "token"
    cluster, asked, headers = cluster_of(RUNNING, token_file=str(file))
    assert "the token for http://127.0.0.1" in looked(cluster).words
    assert asked == []
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        looked(cluster)
    assert [each["Authorization"] for each in headers] == ["Bearer first", "Bearer second"]


SUBMISSION = "spark.kubernetes.authenticate.submission"


def test_address_and_credentials_are_those_of_spark_submit_else_of_the_service_account(tmp_path):
    def of(master="k8s://https://api:6443", **conf):
        settings = {f"{SUBMISSION}.{name}": value for name, value in conf.items()}
        return KubernetesCluster.of(master, settings, str(tmp_path))

    assert not of().can_ask
    assert of("k8s://api:6443").server == "https://api:6443"
    assert of("k8s://http://127.0.0.1:8001/").server == "http://127.0.0.1:8001"
    assert of("k8s://http://127.0.0.1:8001").can_ask
    assert (of().namespace, of().address) == ("default", "https://api:6443/api/v1/namespaces/default")
    assert of(oauthTokenFile="/token").token_file == "/token"
    assert of(clientCertFile="/cert", clientKeyFile="/key").can_ask
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    own = of()
    assert (own.token_file, own.ca_file, own.can_ask) == (str(tmp_path / "token"), str(tmp_path / "ca.crt"), True)
    given = of(oauthToken="t0ken", caCertFile="/ca")
    assert (given.token, given.token_file, given.ca_file) == ("t0ken", "", "/ca")
    assert given.has_secret
    assert not own.has_secret
    assert "t0ken" not in repr(given)


def test_certificates_that_cannot_be_read_are_named(tmp_path):
    cluster = KubernetesCluster("https://127.0.0.1:1", ca_file=str(tmp_path / "none.crt"))
    assert looked(cluster).words.startswith("the certificates for https://127.0.0.1:1 cannot be read")


def test_a_trigger_finds_the_cluster_that_a_task_has_stored():
    cluster = KubernetesCluster("https://api:6443", "spark", token_file="/token", trusts_all=True)
    assert from_dict(to_dict(cluster)) == cluster
