"""Whether the owner of planned batches is still running, according to Airflow's database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_fds.operators.run.owner import FINISHED_STATES, UNFINISHED_RUN_STATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.ledger.owner import Owner


def owner_runs(deployment: str) -> Callable[[Owner], bool | None]:
    """Return a function that looks up whether an owner is running; ``None`` for owners outside this installation.

    Args:
        deployment: Name of this Airflow installation.
    """

    def runs(owner: Owner) -> bool | None:
        if owner.only_plans:
            return False
        if owner.kind != "airflow" or owner.deployment != deployment:
            return None
        of_run = select(DagRun.state).where(DagRun.dag_id == owner.dag_id, DagRun.run_id == owner.run_id)
        of_task = select(TaskInstance.state).where(
            TaskInstance.dag_id == owner.dag_id,
            TaskInstance.run_id == owner.run_id,
            TaskInstance.task_id == owner.task_id,
            TaskInstance.map_index == owner.map_index,
        )
        with create_session() as session:
            if not owner.is_three_task:
                found = session.execute(of_task).first()
                if found is None:
                    return False
                if found[0] is not None:
                    return str(found[0]) not in FINISHED_STATES
            # a task without a state runs if its DAG run continues
            return str(session.scalar(of_run)) in UNFINISHED_RUN_STATES

    return runs
