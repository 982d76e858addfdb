"""The wait for a driver in a cluster, whatever the cluster says of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_fds.backends import cluster_driver
from airflow_provider_fds.backends.base import Application, UserArguments
from airflow_provider_fds.backends.cluster_driver import ClusterDriver, DriverEndedError
from airflow_provider_fds.backends.fleet_application import FleetApplication, FleetPart
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import ClusterLostError, ConfigurationError, LedgerError
from airflow_provider_fds.ledger.facts import SubmittedFacts
from airflow_provider_fds.spark.clusters.cluster import Cluster, ClusterError, Handle, Look
from airflow_provider_fds.spark.submission.submit import SubmitArguments

HANDLE = Handle("http://127.0.0.1:6066", "driver-1")
SILENT = Look("unknown", words="no answer")


class Saying(Cluster):
    """A cluster that says one thing after the other, and the last one for ever."""

    kind = "saying"

    def __init__(self, *looks):
        self.looks = list(looks)
        self.requests = []
        self.stopped = []

    def start(self, request):
        self.requests.append(request)
        if not self.looks:
            raise ClusterError("no master starts the driver")
        return HANDLE

    def look(self, handle):
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def stop(self, handle):
        self.stopped.append(handle)


@pytest.fixture
def run(tmp_path):
    application = SimpleNamespace(
        staging=LocalStorage(str(tmp_path / "staging")),
        begun_key="begun",
        name="fds",
        streams=(),
        record=lambda **_: None,
    )
    for name in ("modules.zip", "delta.jar"):
        (tmp_path / name).write_text(name)

    def run(cluster, was_ended=None, given=None, secret_conf=None, *, is_killed=False, work=application, **options):
        made = SubmitArguments(
            master="spark://host:7077",
            deploy_mode="cluster",
            application="job.py",
            application_args=("file:/job.json",),
            conf={"spark.a": "1"},
            jars=f"{tmp_path}/delta.jar,s3://mine/my.jar",
            driver_class_path=None,
            py_files=f"/shared/mine.py,{tmp_path}/modules.zip",
            secret_conf=secret_conf or {},
        )
        driver = ClusterDriver(cluster, "spark://host:7077", poll_seconds=0, **options)
        if is_killed:
            driver.stop()
        return driver.run(work, made, given or UserArguments(), was_ended or threading.Event())

    run.staging = tmp_path / "staging"
    return run


def test_a_driver_begins_with_files_in_staging_that_have_their_contents_and_the_users_arguments(run):
    cluster = Saying(Look("ended"))
    given = UserArguments(driver_memory="2g", total_executor_cores=3)
    assert run(cluster, given=given) is None
    (request,) = cluster.requests
    names = {path.name.partition("-")[2]: path for path in (run.staging / ".drivers").iterdir()}
    assert {name: path.read_text() for name, path in names.items()} == {
        "modules.zip": "modules.zip",
        "delta.jar": "delta.jar",
    }
    assert request.resource == names["modules.zip"].as_uri()
    assert request.py_files == ("/shared/mine.py",)
    assert request.conf["spark.jars"].split(",")[1] == "s3://mine/my.jar"
    assert (request.conf["spark.driver.memory"], request.conf["spark.cores.max"]) == ("2g", "3")
    # a file that somebody has changed is not what the driver runs
    names["modules.zip"].write_text("other")
    run(cluster)
    assert names["modules.zip"].read_text() == "modules.zip"


def test_a_driver_that_did_not_succeed_is_named_with_the_words_of_the_cluster(run):
    error = run(Saying(Look("running"), Look("ended", has_failed=True, words="FAILED")))
    assert isinstance(error, DriverEndedError)
    assert str(error) == "driver driver-1 on spark://host:7077 ended: FAILED"


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit, AirflowTaskTimeout])
def test_what_ends_the_process_or_its_time_ends_its_driver(run, ending):
    class Ended(Saying):
        def look(self, handle):
            raise ending

    cluster = Ended(Look("running"))
    with pytest.raises(ending):
        run(cluster)
    assert cluster.stopped == [HANDLE]


def test_the_end_of_the_log_of_a_driver_that_failed_follows_its_diagnosis_without_secrets(run, caplog):
    class Telling(Saying):
        def log_page(self, handle):
            return f"http://node/{handle.id}"

        def last_lines(self, handle):
            return ("Traceback", "password=hush")

    caplog.set_level("INFO")
    error = run(Telling(Look("running"), Look("ended", has_failed=True, words="FAILED: exit 1")))
    assert str(error) == "driver driver-1 on spark://host:7077 ended: FAILED: exit 1; its log: http://node/driver-1"
    assert caplog.messages[-4:] == [
        "Log of the driver: http://node/driver-1",
        "Driver driver-1 ended: FAILED: exit 1. The last lines of its log:",
        "Traceback",
        "password=***",
    ]
    caplog.clear()
    assert run(Telling(Look("ended"))) is None
    assert "Traceback" not in caplog.messages


def test_what_the_cluster_says_of_a_driver_that_does_not_run_yet_is_told_once(run, caplog):
    caplog.set_level("INFO")
    waiting = Look("running", words="Pending: ImagePullBackOff: token=hush")
    assert run(Saying(waiting, waiting, SILENT, waiting, Look("running", words="Running"), Look("ended"))) is None
    assert [message for message in caplog.messages if message.startswith("Driver driver-1: ")] == [
        "Driver driver-1: Pending: ImagePullBackOff: token=***",
        "Driver driver-1: Running",
    ]


def test_staging_is_not_asked_for_the_page_of_a_log_where_the_cluster_says_that_there_is_none(run, monkeypatch):
    class Pageless(Saying):
        def log_page(self, handle):
            return ""

    asked = []
    monkeypatch.setattr(LocalStorage, "get", lambda _self, key: asked.append(key))
    monkeypatch.setattr(cluster_driver, "ship", lambda _staging, path: path)
    assert run(Pageless(Look("running"), Look("ended"))) is None
    assert asked == []
    assert run(Saying(Look("ended"))) is None
    assert asked == ["begun"]


def test_a_cluster_that_is_silent_for_a_time_is_asked_again(run):
    assert run(Saying(SILENT, SILENT, Look("running"), SILENT, Look("ended"))) is None


def test_a_cluster_that_stays_silent_ends_the_attempt_which_may_be_repeated(run):
    with pytest.raises(ClusterLostError, match=r"has not told the state of driver driver-1.*no answer") as raised:
        run(Saying(Look("running"), SILENT), lost_seconds=0)
    assert raised.value.retryable


def test_a_silent_cluster_is_no_failure_once_everything_is_committed(run):
    was_ended = threading.Event()
    was_ended.set()
    assert run(Saying(SILENT), was_ended) is None
    assert run(Saying(Look("ended", has_failed=True, words="KILLED")), was_ended) is None


def test_a_cluster_that_starts_no_driver_fails_the_attempt(run):
    with pytest.raises(ClusterLostError, match="no master starts the driver"):
        run(Saying())


def test_a_job_whose_storage_needs_a_secret_is_not_started(run):
    cluster = Saying(Look("ended"))
    with pytest.raises(ConfigurationError, match=r"the job needs spark\.hadoop\.fs\.s3a\.secret\.key: on spark://host"):
        run(cluster, secret_conf={"spark.hadoop.fs.s3a.secret.key": "x"})
    assert cluster.requests == []


def test_a_driver_of_a_task_that_was_killed_before_it_started_is_stopped_at_once(run):
    cluster = Saying(Look("ended", has_failed=True, words="KILLED"))
    assert isinstance(run(cluster, is_killed=True), DriverEndedError)
    assert cluster.stopped == [HANDLE]


LEFT = SubmittedFacts(epoch=1, attempt_id="t1", batch_id=3, cluster="saying", address=HANDLE.cluster, driver=HANDLE.id)


def one_stream(tmp_path, write=None):
    """An application on one batch of a stream; ``write`` is called with what the ledger gets."""
    connected = SimpleNamespace(staging=LocalStorage(str(tmp_path / "staging")))
    session = SimpleNamespace(
        connected=connected, stream=SimpleNamespace(name="orders"), driver=SimpleNamespace(write=write)
    )
    return Application(session, None, SimpleNamespace(batches=(1,), attempt_id="t1"), "file:/job.json")


def test_the_ledger_has_a_driver_before_it_is_waited_for(run, tmp_path):
    cluster = Saying(Look("running"), Look("ended"))
    written = []
    work = one_stream(tmp_path, lambda *_, **driver: written.append((driver, len(cluster.looks))))
    run(cluster, work=work)
    assert written == [({"cluster": "saying", "address": HANDLE.cluster, "driver": HANDLE.id}, 2)]


def test_a_driver_that_the_ledger_does_not_take_is_stopped(run, tmp_path):
    def refused(*_, **__):
        raise LedgerError("another run has taken the batches over")

    cluster = Saying(Look("running"))
    with pytest.raises(LedgerError, match="taken the batches over"):
        run(cluster, work=one_stream(tmp_path, refused))
    assert cluster.stopped == [HANDLE]


def fleet_of(tmp_path, **writes):
    """An application of a fleet, of which each stream has one batch; by name, what is called with its driver."""
    parts = tuple(
        FleetPart(one_stream(tmp_path, write).session, None, SimpleNamespace(batches=(1,)), "")
        for write in writes.values()
    )
    for name, part in zip(writes, parts, strict=True):
        part.session.stream.name = name
    return FleetApplication(parts, f"file:/t1-{'0' * 64}.fleet.json", lambda: True)


def refuse(*_, **__):
    raise LedgerError("another run has taken the batches over")


def test_the_ledger_of_each_stream_of_a_fleet_has_the_driver_and_one_that_refuses_it_holds_no_other_back(
    run, tmp_path, caplog
):
    written = []

    def write(_work, **driver):
        written.append(driver["driver"])

    cluster = Saying(Look("ended"))
    assert run(cluster, work=fleet_of(tmp_path, a=write, b=refuse, c=write)) is None
    assert written == [HANDLE.id] * 2
    assert "Stream b: its ledger does not have the driver" in caplog.text
    assert cluster.stopped == []


def test_a_driver_that_the_ledger_of_no_stream_takes_is_stopped(run, tmp_path):
    cluster = Saying(Look("running"))
    with pytest.raises(LedgerError, match="taken the batches over"):
        run(cluster, work=fleet_of(tmp_path, a=refuse, b=refuse))
    assert cluster.stopped == [HANDLE]


def test_a_driver_can_be_left_if_ledgers_name_it_for_all_streams_and_its_notes_are_known(tmp_path):
    found = fleet_of(tmp_path, a=None, b=None)
    assert found.can_be_left
    fence = FleetPart(found.parts[0].session, None, SimpleNamespace(batches=()), "")
    assert not replace(found, parts=(*found.parts, fence)).can_be_left
    assert not replace(found, spec_uri="").can_be_left


def test_a_driver_of_a_fleet_that_stays_unknown_names_what_frees_the_batches_of_its_streams(tmp_path):
    driver = ClusterDriver(Saying(SILENT), "spark://host:7077", poll_seconds=0, lost_seconds=0)
    with pytest.raises(ClusterLostError, match=r"`fds unlock a --why …`, and the same for b, c, lets"):
        driver.attach(fleet_of(tmp_path, a=None, b=None, c=None), LEFT, threading.Event())


def test_a_driver_of_an_earlier_attempt_is_waited_for_and_none_is_started(tmp_path):
    cluster = Saying(SILENT, Look("running"), Look("ended"))
    driver = ClusterDriver(cluster, "spark://host:7077", poll_seconds=0)
    assert driver.attach(one_stream(tmp_path), LEFT, threading.Event()) is None
    assert cluster.requests == []


def test_a_driver_of_an_earlier_attempt_that_stays_unknown_fails_the_attempt_and_a_person_can_free_the_batches(
    tmp_path,
):
    cluster = Saying(SILENT)
    driver = ClusterDriver(cluster, "spark://host:7077", poll_seconds=0, lost_seconds=0)
    with pytest.raises(ClusterLostError, match=r"starts no other one beside it.*`fds unlock orders --why …`"):
        driver.attach(one_stream(tmp_path), LEFT, threading.Event())
    assert cluster.requests == []


def test_a_driver_of_an_earlier_attempt_is_stopped_with_the_task_and_the_next_one_is_not(run, tmp_path):
    class Killing(Saying):
        def look(self, handle):
            driver.stop()
            return super().look(handle)

    cluster = Killing(Look("ended", has_failed=True, words="KILLED"))
    driver = ClusterDriver(cluster, "spark://host:7077", poll_seconds=0)
    assert isinstance(driver.attach(one_stream(tmp_path), LEFT, threading.Event()), DriverEndedError)
    assert cluster.stopped == [HANDLE]
    cluster.__class__ = Saying
    driver.attach(one_stream(tmp_path), LEFT, threading.Event())
    assert cluster.stopped == [HANDLE]
    # with none between two of them, the next one is
    driver.stop()
    driver.attach(one_stream(tmp_path), LEFT, threading.Event())
    assert cluster.stopped == [HANDLE] * 2
