"""What storage does wrong and what becomes of it, against a real S3 server that fails on demand."""

from __future__ import annotations

import random
import threading
from datetime import timedelta

import pytest

from airflow_provider_fds.batch.manifest import publish
from airflow_provider_fds.batch.manifest.manifest import build_manifest
from airflow_provider_fds.batch.manifest.publish import write_manifest
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot
from airflow_provider_fds.delta.storage.client_limits import TRIES
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import AccessDeniedError, RequestRefusedError, StorageError
from airflow_provider_fds.ledger.entries.epoch_entries import Created
from airflow_provider_fds.ledger.entries.operator_entries import Held, Resumed
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.places import Paths
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.plan import BatchPlanner
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession
from tests.interop.s3_server import EXPIRED, SLOW_DOWN
from tests.manifests import commit_json
from tests.unit.delta.conftest import CheckpointWriter

#: The limits of ``delta/storage/client_limits.py``, in small.
QUICK = {
    "storage_conn_id": "lake",
    "client_options": {"read_timeout": timedelta(seconds=1)},
    "retry_config": {
        "max_retries": 3,
        "retry_timeout": timedelta(seconds=20),
        "backoff": {"init_backoff": timedelta(milliseconds=5), "max_backoff": timedelta(milliseconds=20), "base": 2},
    },
}
BODY = bytes(range(256)) * 4096
ACTOR = Actor(deployment="test")

#: What passes: the fault, and how it is made.
PASSING = {
    "503": ("status", {}),
    "slow down": ("status", {"body": SLOW_DOWN}),
    "500": ("status", {"status": "500 Internal Server Error"}),
    "429": ("status", {"status": "429 Too Many Requests"}),
    "reset before": ("reset_before", {}),
    "reset after": ("reset_after", {}),
    "no answer": ("silent_before", {}),
    "answer lost": ("silent_after", {}),
}
#: What does not pass: status line, body, error, and words of the message.
REFUSALS = {
    "expired token, as S3 says it": ("400 Bad Request", EXPIRED, AccessDeniedError, "connection 'lake' have expired"),
    "expired token": ("403 Forbidden", EXPIRED, AccessDeniedError, "connection 'lake' have expired"),
    "forbidden": ("403 Forbidden", b"", AccessDeniedError, "Check the credentials of the connection 'lake'"),
    "unauthenticated": ("401 Unauthorized", b"", AccessDeniedError, "Check the credentials of the connection 'lake'"),
    "wrong region": (
        "400 Bad Request",
        b"<Error><Code>AuthorizationHeaderMalformed</Code></Error>",
        RequestRefusedError,
        "check the URI, the endpoint and the region",
    ),
    "elsewhere": ("301 Moved Permanently", b"", RequestRefusedError, "check the URI, the endpoint and the region"),
}


@pytest.fixture
def storage(server):
    return open_storage(f"s3://{server.bucket}/t", server.options(**QUICK))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr("airflow_provider_fds.delta.storage.client_limits.PAUSE_SECONDS", 0.005)


def upload(log_builder, storage):
    for path in log_builder.log.iterdir():
        storage.put(f"_delta_log/{path.name}", path.read_bytes())


READS = {
    "HEAD": lambda storage: storage.head("f/x").size_bytes == len(BODY),
    "GET": lambda storage: storage.get("f/x")[0] == BODY,
    "LIST": lambda storage: [meta.key for meta in storage.list_after("f")] == ["f/x"],
}
WRITES = {
    "PUT": lambda storage: storage.put("f/x", BODY) or storage.get("f/x")[0] == BODY,
    "POST": lambda storage: storage.delete("f/x") or storage.head("f/x") is None,
}


# what may pass is asked again


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        (method, fault)
        for method in [*READS, *WRITES]
        for fault in PASSING
        # the client does not repeat a delete that got no answer; housekeeping does, the next time
        if method != "POST" or fault not in ("no answer", "answer lost")
    ],
)
def test_a_request_with_a_passing_failure_is_repeated(server, storage, method, fault):
    storage.put("f/x", BODY)
    server.requests.clear()
    kind, more = PASSING[fault]
    server.fail(kind, method, times=1, **more)
    assert (READS | WRITES)[method](storage)
    assert server.requests[method] == 2


async def test_an_async_head_also_repeats_failed_requests(server, storage):
    storage.put("f/x", BODY)
    server.fail("silent_before", "HEAD", times=1)
    server.fail("status", "HEAD", times=1)
    assert (await storage.head_async("f/x")).size_bytes == len(BODY)
    assert server.requests["HEAD"] == 3


@pytest.mark.parametrize("fault", ["503", "no answer"])
@pytest.mark.parametrize("method", READS)
def test_a_lasting_temporary_failure_ends_after_the_limit_as_an_error_that_airflow_retries(
    server, storage, method, fault
):
    storage.put("f/x", BODY)
    server.requests.clear()
    kind, more = PASSING[fault]
    server.fail(kind, method, **more)
    with pytest.raises(StorageError, match=r"s3://.*after 3 retries") as caught:
        READS[method](storage)
    assert caught.value.retryable
    assert server.requests == {method: 4}


# bodies


@pytest.mark.parametrize("kind", ["cut", "stall"])
def test_a_response_body_that_breaks_off_is_resumed(server, storage, kind):
    storage.put("f/x", BODY)

    def opened():
        with storage.open("f/x") as file:
            return file.read()

    for read in (lambda: storage.get("f/x")[0], lambda: b"".join(storage.stream("f/x", 1 << 16)), opened):
        server.fail(kind, "GET", times=2)
        assert read() == BODY
        assert server.faults.pop().times == 0


def test_a_slow_response_body_is_waited_for(server, storage):
    storage.put("f/x", BODY)
    server.requests.clear()
    server.fail("slow", "GET")  # longer than the longest silence, in pieces that are not
    assert storage.get("f/x")[0] == BODY
    assert server.requests == {"GET": 1}


def test_a_response_body_that_always_breaks_off_is_an_error(server, storage):
    storage.put("f/x", BODY)
    server.fail("cut", "GET")
    with pytest.raises(StorageError, match=r"reading s3://.*/t/f/x") as caught:
        storage.get("f/x")
    assert caught.value.retryable
    with storage.open("f/x") as file, pytest.raises(StorageError, match=r"reading s3://.*/t/f/x"):
        file.read()


@pytest.mark.parametrize("kind", ["cut", "stall"])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_listing_that_breaks_off_continues_where_it_was(server, storage, monkeypatch, kind, after):
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "4")
    keys = [f"f/{i:02d}" for i in range(11)]
    for key in [*keys, *(f"f/05-sub/{i}" for i in range(6))]:
        storage.put(key, b"")
    expected = sorted(keys)
    server.fail(kind, "LIST", times=1, after=after)
    assert [meta.key for meta in storage.list_after("f")] == expected
    assert [fault.times for fault in server.faults] == [0]


def test_a_listing_that_always_breaks_off_is_an_error(server, storage):
    storage.put("f/x", b"")
    server.fail("cut", "LIST")
    with pytest.raises(StorageError, match=r"listing s3://.*/t/f"):
        list(storage.list_after("f"))
    assert server.requests["LIST"] == TRIES


def test_a_checkpoint_is_read_through_broken_connections(server, storage, log_builder, tmp_path):
    spread = random.Random(7)  # names that do not compress
    log_builder.create()
    names = [spread.randbytes(150).hex() for _ in range(1_500)]
    log_builder.commit(*(log_builder.add(name) for name in names))
    CheckpointWriter(log_builder).classic()
    upload(log_builder, storage)
    log, staging = DeltaLog(storage), open_storage(str(tmp_path / "staging"))
    whole = freeze_snapshot(log, 1, staging, "undisturbed")
    for kind in ("cut", "stall", "reset_before", "status"):
        server.fail(kind, "GET", path="checkpoint", times=1, after=1)
    broken = freeze_snapshot(log, 1, staging, "disturbed")
    assert (broken.digest, broken.num_files) == (whole.digest, whole.num_files)
    assert [fault.times for fault in server.faults] == [0, 0, 0, 0]
    server.heal()
    server.fail("cut", "GET", path="checkpoint", after=1)
    with pytest.raises(StorageError, match=r"reading s3://.*checkpoint"):
        freeze_snapshot(log, 1, staging, "never")


# what does not pass is said at once


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("method", ["GET", "LIST", "PUT", "POST"])
def test_a_refusal_is_an_error_at_once(server, storage, method, refusal):
    status, body, error, words = REFUSALS[refusal]
    server.fail("status", method, status=status, body=body)
    with pytest.raises(error, match=words) as caught:
        (READS | WRITES)[method](storage)
    assert not caught.value.retryable
    assert "test-secret" not in str(caught.value)
    assert server.requests == {method: 1}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("400 Bad Request", b"<Error><Code>RequestTimeout</Code></Error>"),  # S3, of a connection that was too slow
        ("412 Precondition Failed", b""),  # replaced while it was read
        ("416 Range Not Satisfiable", b""),
        ("409 Conflict", b""),
    ],
)
def test_a_passing_failure_that_the_client_does_not_repeat_is_an_error_that_airflow_retries(
    server, storage, status, body
):
    server.fail("status", "GET", status=status, body=body)
    with pytest.raises(StorageError) as caught:
        storage.get("f/x")
    assert type(caught.value) is StorageError
    assert caught.value.retryable


def test_an_entry_is_written_despite_them(server, storage):
    server.fail("status", "PUT", path="0.json", status="400 Bad Request", body=b"<Code>RequestTimeout</Code>", times=1)
    server.fail("status", "PUT", path="0.json", status="409 Conflict", times=1)  # another put of it is on its way
    ledger = new_ledger(storage)
    entry = ledger.execute(create(storage), ACTOR)
    assert [found.id for found in new_ledger(storage).entries()] == [entry.id]
    assert [fault.times for fault in server.faults] == [0, 0]


def test_a_refused_head_has_no_reason_and_is_not_repeated(server, storage):
    # S3 says with 400 that a token has expired, and nothing more in the answer to a HEAD
    server.fail("status", "HEAD", status="400 Bad Request", body=EXPIRED)
    with pytest.raises(AccessDeniedError, match=r"token has expired or the region is wrong.*connection 'lake'"):
        storage.head("f/x")
    assert server.requests == {"HEAD": 1}


def test_a_missing_bucket_is_refused_at_once(server):
    storage = open_storage("s3://no-such-bucket-here/t", server.options(**QUICK))
    with pytest.raises(RequestRefusedError, match="Create it, or check its name"):
        storage.put("x", b"")
    assert server.requests == {"PUT": 1}


def test_credentials_that_cannot_be_renewed_are_an_error_at_once(server):
    def renew():
        raise RuntimeError("the role is gone")

    storage = open_storage(
        f"s3://{server.bucket}/t",
        {"endpoint": server.endpoint, "region": "us-east-1", "credential_provider": renew, **QUICK},
    )
    with pytest.raises(AccessDeniedError, match=r"the role is gone.*connection 'lake'"):
        storage.head("x")
    assert not server.requests


def test_the_message_says_that_no_connection_was_used(server):
    options = {key: value for key, value in QUICK.items() if key != "storage_conn_id"}
    storage = open_storage(f"s3://{server.bucket}/t", server.options(**options))
    server.fail("status", "GET", status="403 Forbidden")
    with pytest.raises(AccessDeniedError, match=r"credentials of the environment \(no storage_conn_id is given"):
        storage.get("x")


# writes that may or may not have been done


def new_ledger(storage):
    return Ledger(storage, "orders")


def create(storage):
    return Created(uuid="00000000-0000-0000-0000-000000000001", name="orders", table="s3://t", deployment="test")


LOST = ["status_after", "reset_after", "silent_after", "status", "reset_before", "silent_before"]


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("times", [1, 2])
def test_an_entry_whose_response_was_lost_is_recognised_by_its_id(server, storage, kind, times):
    server.fail(kind, "PUT", path="00000000000000000000.json", times=times)
    ledger = new_ledger(storage)
    entry = ledger.execute(create(storage), ACTOR)
    assert entry is not None
    assert [found.id for found in new_ledger(storage).entries()] == [entry.id]
    assert server.faults[0].times < times


@pytest.mark.parametrize("kind", LOST)
def test_a_lost_answer_does_not_win_over_a_faster_writer(server, storage, kind):
    slow, fast = new_ledger(storage), new_ledger(storage)
    slow.load(None)
    winner = fast.execute(create(storage), ACTOR)
    server.fail(kind, "PUT", path="00000000000000000000.json", times=1)
    assert slow.execute(create(storage), ACTOR) is None  # it is created already
    assert [found.id for found in new_ledger(storage).entries()] == [winner.id]


def test_an_entry_that_cannot_be_written_is_an_error_that_airflow_retries(server, storage):
    server.fail("silent_before", "PUT", path="00000000000000000000.json")
    with pytest.raises(StorageError, match="it is unknown whether entry") as caught:
        new_ledger(storage).execute(create(storage), ACTOR)
    assert caught.value.retryable
    assert server.requests["PUT"] == TRIES + 2  # and two of the self-test


def test_of_many_writers_over_a_bad_connection_each_entry_has_one(server, storage):
    new_ledger(storage).execute(create(storage), ACTOR)
    for kind in ("status_after", "reset_after", "reset_before", "status") * 3:
        server.fail(kind, "PUT", path="/ledger/", times=1, after=1)
    won, barrier = [], threading.Barrier(4)

    def write(i):
        ledger = new_ledger(storage)
        ledger.load(None)
        barrier.wait()
        for k in range(3):
            command = Held(why=f"{i}-{k}") if k % 2 == 0 else Resumed(why=f"{i}-{k}")
            entry = ledger.execute(command, ACTOR)
            if entry is not None:
                won.append(entry.id)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = list(new_ledger(storage).entries())
    assert [entry.n for entry in entries] == list(range(len(entries)))
    assert sorted(entry.id for entry in entries[1:]) == sorted(won)


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("kind", LOST)
def test_a_manifest_whose_response_was_lost_exists_once_and_complete(
    server, storage, log_builder, kind, is_large, monkeypatch
):
    if is_large:
        monkeypatch.setattr(publish, "_ONE_REQUEST_BYTES", 0)
    log_builder.create()
    log_builder.append(3)
    log = DeltaLog(open_storage(str(log_builder.root)))
    planner = BatchPlanner(log, Offset(log_builder.table_id, 0), None, SourceOptions.parse({}), 1)
    manifest = build_manifest(next(iter(planner)), table_uri=log.table_uri)
    server.fail(kind, "PUT", path="0.json", times=1)
    server.fail(kind, "PUT", path="0.crc", times=2)
    write_manifest(manifest, storage, "m")
    assert storage.get("m/_delta_log/00000000000000000000.json")[0] == commit_json(manifest)
    assert storage.get("m/_delta_log/00000000000000000000.crc")[0] == manifest.checksum_json
    assert [fault.times for fault in server.faults] == [0, 0]


# a whole run


def session_of(server, storage, run="run-1", *, max_retries=3):
    options = server.options(**{**QUICK, "retry_config": {**QUICK["retry_config"], "max_retries": max_retries}})
    return StreamSession(
        DeltaStream("orders", table=storage.uri, starting_version=0, max_files_per_batch=4),
        StreamContext(
            staging_uri=f"s3://{server.bucket}/staging",
            deployment="test",
            actor=ACTOR,
            owner=Owner(kind="airflow", deployment="test", dag_id="dag", run_id=run, task_id="ingest"),
            owner_is_running=lambda _owner: False,
            places=Paths(options),
            staging_options=options,
        ),
    )


def test_credentials_that_expire_while_a_run_plans_end_it_at_once_and_the_next_run_plans_it_all(
    server, storage, log_builder
):
    log_builder.create()
    for _ in range(20):
        log_builder.append(1)
    upload(log_builder, storage)
    for after in range(0, 20, 4):
        server.requests.clear()
        server.fail("status", "GET", path="_delta_log", status="400 Bad Request", body=EXPIRED, after=after)
        with pytest.raises(AccessDeniedError, match=r"credentials of the connection 'lake' have expired"):
            session_of(server, storage).begin(None)
        server.heal()
    work = session_of(server, storage).begin(None)
    assert [batch.num_files for batch in work.batches] == [4, 4, 4, 4, 4]
    assert [entry.action.kind for entry in new_ledger(session_of(server, storage).connected.staging).entries()] == [
        "created",
        "opened",
        "planned",
    ]


def test_a_run_succeeds_although_every_third_storage_request_fails(server, storage, log_builder):
    log_builder.create()
    for _ in range(20):
        log_builder.append(1)
    upload(log_builder, storage)
    kinds = ("status", "reset_before", "reset_after", "cut")
    for i in range(40):
        server.fail(kinds[i % len(kinds)], times=1, after=2)
    # many readers at once: one of them may meet several of the faults in a row
    work = session_of(server, storage, max_retries=10).begin(None)
    assert [batch.num_files for batch in work.batches] == [4, 4, 4, 4, 4]
    assert sum(fault.times == 0 for fault in server.faults) >= 10
