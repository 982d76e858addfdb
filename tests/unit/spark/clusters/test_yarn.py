"""What ResourceManagers and nodes of YARN say, as recorded from Hadoop 3.5, and what it is taken for."""

from __future__ import annotations

import pytest

from airflow_provider_fds.spark.clusters.cluster import ClusterError, DriverRequest, Handle, Look
from airflow_provider_fds.spark.clusters.yarn import YarnCluster
from tests.answers import answering

ID = "application_1795934166670_0001"
HANDLE = Handle("http://127.0.0.1:8088", ID)
FORGOTTEN = (
    404,
    {
        "RemoteException": {
            "exception": "NotFoundException",
            "message": f"app with id: {ID} not found",
            "javaClassName": "org.apache.hadoop.yarn.webapp.NotFoundException",
        }
    },
)
NO_APPS = {"apps": {}}
#: Of a standby ResourceManager while there is no active one.
NO_ACTIVE = b"There is no active RM right now."
LOG = """Container: container_1795934166670_0001_01_000001 on localhost:43985
LogAggregationType: LOCAL
====================================================================
LogType:stderr
LogLastModifiedTime:Sun Nov 29 06:37:30 +0000 2026
LogLength:21782
LogContents:
nt: Asking each executor to shut down
26/11/29 06:37:30 INFO MemoryStore: MemoryStore cleared

End of LogType:stderr.
***********************************************************************

"""


def app(state, final="UNDEFINED", diagnostics="", **more):
    return {"id": ID, "state": state, "finalStatus": final, "diagnostics": diagnostics, **more}


@pytest.fixture
def manager():
    """Return the address of a ResourceManager that gives answers, and what it was asked."""
    servers = []

    def make(*answers):
        server, asked = answering(answers)
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", asked

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def cluster_of(manager):
    def make(*answers, **options):
        address, asked = manager(*answers)
        return YarnCluster((address,), "etl", **options), asked

    return make


def request(submit, **conf):
    return DriverRequest("fds", "job.py", ("file:/job.json",), conf, {}, claim="20261129T063000-AB", submit=submit)


def test_a_driver_is_found_by_a_tag_that_was_chosen_before_spark_submit_started(cluster_of):
    given = []
    # for a moment the ResourceManager does not show it
    cluster, asked = cluster_of(NO_APPS, {"apps": {"app": [app("ACCEPTED")]}})
    assert cluster.start(request(given.append, **{"spark.yarn.tags": "mine"})).id == ID
    assert given == [{"spark.yarn.tags": "mine,fds-20261129T063000-AB", "spark.yarn.submit.waitAppCompletion": "false"}]
    assert asked == [("GET", "/ws/v1/cluster/apps?applicationTags=fds-20261129T063000-AB", None)] * 2


def test_of_two_applications_with_the_tag_it_is_the_one_that_was_started_last(cluster_of):
    first, second = app("KILLED", startedTime=1), app("RUNNING", startedTime=2) | {"id": "application_1_0002"}
    cluster, _ = cluster_of({"apps": {"app": [second, first]}})
    assert cluster.start(request(lambda _: None)).id == "application_1_0002"


def test_a_submitted_driver_that_no_resource_manager_shows_is_an_error(cluster_of):
    cluster, _ = cluster_of(NO_APPS, find_seconds=0)
    with pytest.raises(ClusterError, match=r"no ResourceManager shows an application with the tag fds-20261129T"):
        cluster.start(request(lambda _: None))


def test_what_a_spark_submit_that_is_killed_has_submitted_is_stopped(cluster_of):
    def killed(_):
        raise KeyboardInterrupt

    cluster, asked = cluster_of({"apps": {"app": [app("ACCEPTED")]}}, (202, {"state": "ACCEPTED"}))
    with pytest.raises(KeyboardInterrupt):
        cluster.start(request(killed))
    assert asked[1:] == [("PUT", f"/ws/v1/cluster/apps/{ID}/state?user.name=etl", {"state": "KILLED"})]


def test_an_application_that_shows_only_after_the_search_for_it_is_stopped(cluster_of):
    cluster, asked = cluster_of(NO_APPS, {"apps": {"app": [app("ACCEPTED")]}}, (202, {}), find_seconds=0)
    with pytest.raises(ClusterError, match="no ResourceManager shows an application"):
        cluster.start(request(lambda _: None))
    assert asked[2:] == [("PUT", f"/ws/v1/cluster/apps/{ID}/state?user.name=etl", {"state": "KILLED"})]


@pytest.mark.parametrize(
    ("answer", "look"),
    [
        (app("NEW_SAVING"), Look("running", words="NEW_SAVING")),
        (app("ACCEPTED"), Look("running", words="ACCEPTED")),
        (app("RUNNING"), Look("running", words="RUNNING")),
        (app("FINISHED", "SUCCEEDED"), Look("ended", words="SUCCEEDED")),
        (
            app("FINISHED", "FAILED", "User application exited with status 12"),
            Look("ended", has_failed=True, words="FAILED: User application exited with status 12"),
        ),
        (app("FINISHED"), Look("ended", has_failed=True, words="UNDEFINED")),
        (
            app("FAILED", "FAILED", "exitCode: -100 … released on a *lost* node\n"),
            Look("ended", has_failed=True, words="FAILED: exitCode: -100 … released on a *lost* node"),
        ),
        (
            app("KILLED", "KILLED", "killed by user etl"),
            Look("ended", has_failed=True, words="KILLED: killed by user etl"),
        ),
        # of a YARN to come
        (app("PAUSED"), Look("unknown", words="PAUSED")),
    ],
)
def test_each_state_is_running_ended_or_unknown(cluster_of, answer, look):
    assert cluster_of({"app": answer})[0].look(HANDLE) == look


#: Of a driver whose Python does not exist.
EXITED = """Application application_1_0001 failed 1 times (global limit =2; local limit is =1) due to AM Container for \
appattempt_1_0001_000001 exited with  exitCode: 13
Failing this attempt.Diagnostics: [2026-11-29 06:55:48.201]Exception from container-launch.
Container id: container_e01_1_0001_01_000001
Exit code: 13

[2026-11-29 06:55:48.235]Container exited with a non-zero exit code 13. Error file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
Last 4096 bytes of stderr :
Impl.forkAndExec(Native Method)
"""
TOLD = """26/11/29 06:55:47 INFO ApplicationMaster: Final app status: FAILED, exitCode: 13, (reason: User class threw \
exception: java.io.IOException: Cannot run program "/nowhere/python": error=2, No such file or directory
	at java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
"""


def test_a_diagnosis_is_what_the_driver_told_yarn_else_what_yarn_saw_without_the_end_of_the_log(cluster_of):
    words = cluster_of({"app": app("FAILED", "FAILED", EXITED + TOLD)})[0].look(HANDLE).words
    assert words == (
        'FAILED: User class threw exception: java.io.IOException: Cannot run program "/nowhere/python": error=2, No '
        "such file or directory"
    )
    words = cluster_of({"app": app("FAILED", "FAILED", EXITED)})[0].look(HANDLE).words
    assert words.startswith("FAILED: Application application_1_0001 failed 1 times")
    assert words.endswith("Container exited with a non-zero exit code 13.")


@pytest.mark.parametrize("answer", [FORGOTTEN, NO_ACTIVE, [1], (500, {}), {"app": {}}])
def test_a_resource_manager_that_does_not_know_an_application_does_not_say_that_it_ended(cluster_of, answer):
    found = cluster_of(answer)[0].look(HANDLE)
    assert found.state == "unknown"
    assert found.words


def test_a_cluster_that_is_not_reached_says_nothing_of_its_drivers():
    cluster = YarnCluster(("http://127.0.0.1:1",))
    assert cluster.look(HANDLE).state == "unknown"
    assert "does not answer" in cluster.look(HANDLE).words
    assert "does not answer" in (cluster.stop(HANDLE) or "")
    assert cluster.log_page(HANDLE) is None
    assert cluster.last_lines(HANDLE) == ()


def test_a_standby_resource_manager_redirects_to_the_active_one(manager):
    active, asked = manager({"app": app("RUNNING")}, (202, {"state": "RUNNING"}))
    standby, _ = manager((307, active))
    cluster = YarnCluster((standby,))
    assert cluster.look(HANDLE).state == "running"
    assert cluster.stop(HANDLE) is None
    assert [(method, body) for method, _, body in asked] == [("GET", None), ("PUT", {"state": "KILLED"})]


def test_of_several_resource_managers_the_next_one_is_asked_if_one_is_gone_or_knows_nothing(manager):
    forgetful, _ = manager(FORGOTTEN)
    active, _ = manager({"app": app("RUNNING")}, (200, {"state": "KILLED"}))
    cluster = YarnCluster(("http://127.0.0.1:1", forgetful, active))
    assert cluster.look(HANDLE).state == "running"
    assert cluster.stop(HANDLE) is None


def test_the_resource_manager_of_an_application_is_asked_also_if_the_connection_names_another_one_by_now(manager):
    old, _ = manager({"app": app("RUNNING")}, (202, {"state": "RUNNING"}))
    new, _ = manager(FORGOTTEN, FORGOTTEN)
    handle = Handle(old, ID)
    assert YarnCluster((new,)).look(handle).state == "running"
    assert YarnCluster((new,)).stop(handle) is None


def test_an_application_that_cannot_be_stopped_is_told_with_the_reason(cluster_of):
    refusal = {"RemoteException": {"message": "User dr.who cannot perform operation MODIFY_APP"}}
    assert "HTTP 403, User dr.who cannot perform operation" in (cluster_of((403, refusal))[0].stop(HANDLE) or "")
    # it has ended
    assert cluster_of({"state": "FINISHED"})[0].stop(HANDLE) is None


def test_a_proxy_that_makes_a_question_of_the_request_has_stopped_nothing(manager):
    active, asked = manager({"state": "RUNNING"})
    proxy, _ = manager((302, active))
    assert YarnCluster((proxy,)).stop(Handle(proxy, ID)) == f"{proxy}: HTTP 200, it is RUNNING"
    assert [method for method, *_ in asked] == ["GET"]


def test_the_log_of_a_driver_is_on_the_web_server_of_its_node(manager):
    node, asked = manager(LOG.encode(), LOG.replace("stderr", "stdout").encode())
    page = f"{node}/node/containerlogs/container_1795934166670_0001_01_000001/root"
    cluster = YarnCluster((manager({"app": app("FINISHED", "FAILED", amContainerLogs=page)})[0],))
    assert cluster.log_page(HANDLE) == page
    lines = ["nt: Asking each executor to shut down", "26/11/29 06:37:30 INFO MemoryStore: MemoryStore cleared"]
    assert cluster.last_lines(HANDLE) == tuple(f"{name}: {line}" for name in ("stderr", "stdout") for line in lines)
    path = "/ws/v1/node/containers/container_1795934166670_0001_01_000001/logs/stderr?size=-4000"
    assert asked[0] == ("GET", path, None)


def test_a_log_that_the_node_has_handed_over_has_no_last_lines(manager):
    node, _ = manager((404, b"Unable to locate the log"))
    page = f"{node}/node/containerlogs/container_1_0001_01_000001/root"
    assert YarnCluster((manager({"app": app("FAILED", amContainerLogs=page)})[0],)).last_lines(HANDLE) == ()


def test_an_application_without_a_container_has_no_log(cluster_of):
    assert cluster_of({"app": app("ACCEPTED")})[0].log_page(HANDLE) is None
    assert cluster_of({"app": app("ACCEPTED", amContainerLogs="N/A")})[0].log_page(HANDLE) is None
