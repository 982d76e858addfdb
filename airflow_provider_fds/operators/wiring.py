"""Plan, load, commit: the wiring of the three-task form, and the refusal of one that would lose rows."""

from __future__ import annotations

from typing import Any

from airflow_provider_fds.errors import ConfigurationError


def tasks_between(dag: Any, plan_task_id: str, commit_task_id: str) -> set[str]:
    """Return the ids of the tasks that run after the plan and before the commit."""
    after_plan = dag.get_task(plan_task_id).get_flat_relative_ids(upstream=False)
    before_commit = dag.get_task(commit_task_id).get_flat_relative_ids(upstream=True)
    return set(after_plan & before_commit)


def check_wiring(dag: Any, plan_task_id: str, commit_task_id: str) -> set[str]:
    """Return the tasks between plan and commit.

    Raises:
        ConfigurationError: If there is none: the commit would move the offset past rows that nobody has loaded.
    """
    between = tasks_between(dag, plan_task_id, commit_task_id)
    if not between:
        raise ConfigurationError(
            f"DAG {dag.dag_id!r}: task {commit_task_id!r} commits the batch that {plan_task_id!r} has planned, and no "
            "task stands between them: it would move the offset past rows that nobody has loaded, as soon as they are "
            f"planned. Taking batch={plan_task_id}.output alone makes the plan its only upstream. "
            f"Wire {plan_task_id} >> your_load >> {commit_task_id}."
        )
    return between


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
