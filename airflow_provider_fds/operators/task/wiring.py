"""The wiring of the three-task form (plan, load, commit), and the refusal of a wiring that would lose rows."""

from __future__ import annotations

from typing import Any, Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

#: States of a task that does not read its plan's batch again, unless it is cleared.
_HAVE_READ_THEIR_BATCH: Final = ("running", "deferred", "success")


def tasks_between(dag: Any, plan_task_id: str, commit_task_id: str) -> set[str]:
    """Return the ids of the tasks that run after the plan and before the commit."""
    after_plan = dag.get_task(plan_task_id).get_flat_relative_ids(upstream=False)
    before_commit = dag.get_task(commit_task_id).get_flat_relative_ids(upstream=True)
    return set(after_plan & before_commit)


def check_wiring(dag: Any, plan_task_id: str, commit_task_id: str) -> set[str]:
    """Return the tasks between plan and commit.

    Raises:
        ConfigurationError: No task is between them: the offset would move past rows that were never loaded.
    """
    between = tasks_between(dag, plan_task_id, commit_task_id)
    if not between:
        raise ConfigurationError(
            f"DAG {dag.dag_id!r}: task {commit_task_id!r} commits the batch of {plan_task_id!r}, but there is no task "
            "between them: the offset would move past rows that were never loaded. "
            f"batch={plan_task_id}.output alone makes the plan its only upstream. "
            f"Wire {plan_task_id} >> your_load >> {commit_task_id}.",
            reason=Reason.WIRING_INVALID,
        )
    return between


def begun_before(ti: Any, task_ids: set[str]) -> str:
    """Return the tasks after a plan that were not cleared and so do not read the batch that it hands out now.

    Args:
        ti: The plan's task instance.
        task_ids: The tasks between plan and commit.

    Returns:
        Each such task with its state; empty if no task started earlier.
    """
    if not task_ids:
        return ""
    states = ti.get_task_states(
        dag_id=ti.dag_id,
        task_ids=sorted(task_ids),
        run_ids=[ti.run_id],
        # in a mapped task group, only the instances of the same branch count
        map_index=ti.map_index if ti.map_index >= 0 else None,
    ).get(ti.run_id, {})
    values = {key: getattr(state, "value", state) for key, state in states.items()}
    return ", ".join(f"{key}: {state}" for key, state in sorted(values.items()) if state in _HAVE_READ_THEIR_BATCH)


def commits_of(dag: Any, plan_task_id: str) -> list[str]:
    """Return the ids of the tasks downstream of the plan that take its output as ``batch``."""
    downstream = dag.get_task(plan_task_id).get_flat_relative_ids(upstream=False)
    return sorted(task_id for task_id in downstream if plan_task_id in _batch_sources(dag.get_task(task_id)))


def _batch_sources(task: Any) -> set[str]:
    batch = getattr(task, "batch", None) or getattr(task, "partial_kwargs", {}).get("batch")
    references = getattr(batch, "iter_references", None)
    if references is None:
        return set()
    return {operator.task_id for operator, _key in references()}
