"""Models of the protocol: how they run, their processes, and what one of their runs plans."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.delta.storage import prefetch


@dataclass
class Process:
    """A run's driver, or its fence: a generator whose steps are accesses to the sink."""

    steps: object
    is_done: bool = False
    found: list = field(default_factory=list)


class Processes:
    """What models of several processes have in common; ``processes`` are all that were ever started."""

    def step(self, process):
        try:
            next(process.steps)
        except StopIteration:
            process.is_done = True

    def advance(self, process, count):
        """Let a process make some steps; ``None`` is a run that had nothing to do."""
        for _ in range(count):
            if process is None or process.is_done:
                return
            self.step(process)

    def running(self):
        return [process for process in self.processes if not process.is_done]


class LastState:
    """The state in a ledger, read again once an object has changed: a model asks for it before each of its steps."""

    def __init__(self, storage, read):
        self._storage, self._read = storage, read
        self._seen = self._state = None

    def __call__(self):
        if self._seen != self._storage.objects:
            self._seen, self._state = dict(self._storage.objects), self._read()
        return self._state


def batches_of_a_version(make, state, name, versions, **fields):
    """Return a planned batch for each version of the source, in order, as the run ``name`` plans them."""
    batches, previous = [], state.next_prev_txn_version
    for batch_id, version in enumerate(versions, state.next_batch_id):
        batch = make.batch(
            batch_id,
            state.epoch,
            start=make.offset(version),
            end=make.offset(version + 1),
            first_version=version,
            last_version=version,
            digest=f"{name}-{batch_id}",
            **fields,
        )
        batches.append(replace(batch, prev_txn_version=previous))
        previous = txn_version(state.epoch, batch_id)
    return batches


def explore(machine, *, examples, steps):
    """Run a model: the same examples each time, or ``FDS_MODEL_EXAMPLES`` new ones.

    A dictionary answers at once: the threads that read several objects of a store would take most of the time.
    """
    new = int(os.environ.get("FDS_MODEL_EXAMPLES", "0"))
    with patch.object(prefetch, "_FEW", sys.maxsize):
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=new or examples,
                stateful_step_count=steps,
                derandomize=not new,
                database=None,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            ),
        )


__all__ = ["LastState", "Process", "Processes", "batches_of_a_version", "explore"]
