"""Rows that two streams have loaded into one sink: found before anything is planned, with a way that leads on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.errors import BatchRejectedError
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from tests.unit.stream.epochs.test_epoch_start import leave_fence

if TYPE_CHECKING:
    from tests.unit.stream.conftest import Bench


@pytest.mark.parametrize("starts", [(0, 1), (1, 0)], ids=["first began earlier", "second began earlier"])
def test_a_new_epoch_plans_nothing_so_that_the_stream_can_be_retired(
    bench: Bench, log_builder: Any, sink: Any, starts: tuple[int, int]
) -> None:
    log_builder.with_appends(2)
    for name, start in zip(("one", "two"), starts, strict=True):
        bench.load_once(sink, stream=bench.stream(name, starting_version=start, allow_overlap=True))
    log_builder.append()
    one = bench.stream("one", starting_version=starts[0])
    session = bench.session("run-2", stream=one)
    session.connected.load()
    ledger, actor = session.connected.ledger, session.connected.context.actor
    perform(ledger, ActionBuilder(ledger, "again").replan(), actor)
    work = session.begin(sink)
    assert work.status == "fence"
    leave_fence(bench, session, session.job(work, sink))
    session.collect(work)
    with pytest.raises(BatchRejectedError, match="rows are duplicated") as told:
        session.begin(sink)
    kept, retired = ("one", "two") if starts[0] == 0 else ("two", "one")
    for part in (f"Retire stream '{retired}'", f"`fds rewind {kept} --to 1 --sink-rows delete --force-sink"):
        assert part in str(told.value)
    assert session.connected.load().planned == ()
    perform(ledger, ActionBuilder(ledger, "the other one goes on").retire(), actor)
    assert session.connected.load().retired is not None
