"""The task instance that owns a stream's batches, and whether another owner still runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.ledger.owner import Actor, Owner

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

#: States in which a task instance is finished, unless it is cleared. In every other state, including retries, it runs.
FINISHED_STATES: Final = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
UNFINISHED_RUN_STATES: Final = ("queued", "running")


def task_actor(ti: Any, deployment: str) -> Actor:
    """Return this attempt of a task instance as the author of ledger entries."""
    return Actor(
        deployment=deployment,
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=ti.map_index,
        try_number=ti.try_number,
    )


def task_owner(
    ti: Any, deployment: str, *, task_id: str | None = None, map_index: int | None = None, is_three_task: bool = False
) -> Owner:
    """Return the task instance as an owner of batches; all its attempts are the same owner.

    Args:
        ti: The running task instance.
        deployment: Name of the Airflow installation.
        task_id: Task that planned, if it is not this one (the commit of a three-task batch).
        map_index: Its map index.
        is_three_task: Whether plan, load and commit are separate tasks.
    """
    return Owner(
        kind="airflow",
        deployment=deployment,
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=task_id or ti.task_id,
        map_index=ti.map_index if map_index is None else map_index,
        is_three_task=is_three_task,
    )


def owner_is_running(ti: Any, deployment: str) -> Callable[[Owner], bool]:
    """Return a function that is :func:`owner_runs`, and for which an owner that nobody can ask about is running.

    ``fds unlock`` frees the batches of such an owner.
    """
    runs = owner_runs(ti, deployment)
    return lambda owner: runs(owner) is not False


def owner_runs(ti: Any, deployment: str) -> Callable[[Owner], bool | None]:
    """Return a function that asks Airflow, through the running task instance, whether an owner still runs.

    The function returns ``None`` if Airflow cannot answer: for owners of another installation or of the command line,
    and when the request fails.
    """

    def runs(owner: Owner) -> bool | None:
        if owner.only_plans:
            return False
        if owner.kind != "airflow" or owner.deployment != deployment:
            return None
        try:
            return _run_is_unfinished(ti, owner) if owner.is_three_task else _task_is_unfinished(ti, owner)
        except Exception:  # the request to Airflow may fail in any way
            log.warning("Cannot ask Airflow about the %s, so it may be running.", owner.describe(), exc_info=True)
            return None

    return runs


def _run_is_unfinished(ti: Any, owner: Owner) -> bool:
    # a count, not get_dagrun_state, which fails for a deleted run; a deleted run does not run
    unfinished: int = ti.get_dr_count(dag_id=owner.dag_id, run_ids=[owner.run_id], states=list(UNFINISHED_RUN_STATES))
    return unfinished > 0


def _task_is_unfinished(ti: Any, owner: Owner) -> bool:
    states = ti.get_task_states(dag_id=owner.dag_id, task_ids=[owner.task_id], run_ids=[owner.run_id])
    key = owner.task_id if owner.map_index < 0 else f"{owner.task_id}_{owner.map_index}"
    of_run = states.get(owner.run_id, {})
    if key not in of_run:
        return False
    state = of_run[key]
    if state is None:
        # cleared, or not scheduled yet: it runs again if its DAG run continues
        return _run_is_unfinished(ti, owner)
    return getattr(state, "value", state) not in FINISHED_STATES
