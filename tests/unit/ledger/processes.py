"""Runs of a model: processes that stand still after each step, and what a run plans."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from airflow_provider_fds.batch.spec import txn_version


@dataclass
class Process:
    """A run's driver, or its fence: a generator whose steps are accesses to the sink."""

    steps: object
    is_done: bool = False
    found: list = field(default_factory=list)


class Processes:
    """What a model of several processes has in common; ``processes`` are those that were ever started."""

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


__all__ = ["Process", "Processes", "batches_of_a_version"]
