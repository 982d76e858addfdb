"""Streams whose ledger was lost, and what the account in PostgreSQL says of them; no Spark is needed."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.sink.postgres_account import FENCE, Account, Entry
from airflow_provider_fds.batch.transactions import fence_version
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.sinks import PostgresSink
from tests.conftest import LogBuilder
from tests.unit.stream.conftest import Bench

if TYPE_CHECKING:
    from pathlib import Path

LOST = "0b6c3a6e-7c6d-4c8e-9a51-0e3c1f6f2a11"
SINK = PostgresSink("public.orders", conn_id="pg", account="fds_2", mode="merge", keys=("id",))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    log = LogBuilder(tmp_path / "table")
    log.create()
    log.append()
    return Bench(tmp_path / "table", tmp_path / "staging")


def known(database: Any, *entries: Entry) -> None:
    """Let the account have a stream ``orders`` with these commits."""
    with database.connection() as connection:
        connection.autocommit = False
        account = Account(connection, SINK.account, SINK.parts)
        account.create()
        target = account.registered(account.target())
        account.add_stream(LOST, target, "orders", 1)
        for entry in entries:
            account.record(LOST, target, entry, "table", (0, 9))
        connection.commit()


def refused(bench: Bench) -> str:
    with pytest.raises(LedgerError) as error:
        bench.session().begin(SINK)
    assert error.value.reason_code == "LEDGER_LOST"
    return str(error.value)


def recover(bench: Bench, message: str) -> int:
    """Run the command of a message as a shell would, with the table."""
    (command,) = re.findall(r"`fds (recover .*?)`", message)
    words = [str(bench.table) if word == "URI" else word for word in shlex.split(command)]
    return main([*words, "--staging", str(bench.staging), "--deployment", "test", "--yes"])


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_stream_that_has_only_registered_begins_again_under_its_uuid(bench, database, epoch):
    known(database, *([Entry(epoch, FENCE, "", 0, "", 1, "a")] if epoch else []))
    message = refused(bench)
    assert f"(uuid {LOST}) is registered, without a batch, for" in message
    assert recover(bench, message) == 0
    session = bench.session()
    work = session.begin(SINK)
    assert (work.status, work.epoch) == (("fence", 3) if epoch else ("work", 1))
    assert session.connected.state.uuid == LOST
    if epoch:
        assert fence_version(work.epoch) > fence_version(epoch)
        assert session.connected.state.request.to == {"start": "options"}


def test_a_stream_with_batches_is_recovered_by_the_command_of_the_message(bench, database):
    end = '{"sourceVersion":1,"reservoirId":"%s","reservoirVersion":1,"index":-1,"isStartingVersion":false}'
    table_id = bench.session().connected.log.state_at(0).metadata.id
    known(database, Entry(1, 0, "digest", 5, end % table_id, 1, "a"))
    message = refused(bench)
    assert f"(uuid {LOST}) has written to" in message
    assert recover(bench, message) == 0
    assert bench.session().begin(SINK).status == "fence"


def test_a_stream_that_has_a_ledger_of_its_own_is_not_sent_to_recover_either(bench, database):
    known(database)
    bench.session("plan").begin(None)
    message = refused(bench)
    assert "knows of no batch in its sink" in message
    assert "if it is lost, give this stream another name and another table" in message


def test_data_intervals_of_a_lost_ledger_are_not_sent_to_recover(bench, database):
    known(database, Entry(1, 0, "digest", 5, "end", 1, "a", interval="2026-01-01/2026-01-02"))
    message = refused(bench)
    assert "fds recover" not in message
    assert "if it is lost, load the intervals into another sink with a stream of another name" in message
