"""Who writes an entry, and who may work on a batch."""

from __future__ import annotations

from typing import Final, Literal
from uuid import uuid4

import msgspec

_PLAN: Final = "plan:"


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who wrote an entry: an Airflow task, or a person at a machine.

    Attributes:
        deployment: The Airflow installation (``[fds] deployment``) on whose behalf it was written.
        try_number: Airflow's try number of the task, from 1.
        user: Name of the account, for a person.
        host: Name of the machine, for a person.
    """

    deployment: str
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int = -1
    try_number: int | None = None
    user: str | None = None
    host: str | None = None

    def describe(self) -> str:
        """Return the actor in words."""
        if self.dag_id is None:
            return f"{self.user or 'unknown user'}@{self.host or 'unknown host'}"
        words = _describe_task(self.dag_id, self.run_id, self.task_id, self.map_index)
        return words if self.try_number is None else f"{words} (try {self.try_number})"


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Who may work on the planned batches: an Airflow task instance in any of its attempts, or a process of the CLI.

    Two owners are equal if all fields are, so the retry of a task is the same owner as its first attempt.

    Attributes:
        kind: ``airflow`` or ``cli``.
        deployment: The Airflow installation the owner runs in.
        run_id: Run of the DAG; for the CLI an id that distinguishes processes, such as ``user@host:pid``.
        is_three_task: Whether plan, load and commit are three tasks. Such an owner runs as long as its DAG run.
    """

    kind: Literal["airflow", "cli"]
    deployment: str
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int = -1
    is_three_task: bool = False

    @classmethod
    def of_plan(cls, deployment: str) -> Owner:
        """Return the owner of batches that a command plans or frees without loading them; see :attr:`only_plans`."""
        return cls(kind="cli", deployment=deployment, run_id=f"{_PLAN}{uuid4().hex[:12]}")

    @property
    def only_plans(self) -> bool:
        """Whether no process works on the batches, so that any run may claim them."""
        return self.kind == "cli" and (self.run_id or "").startswith(_PLAN)

    def describe(self) -> str:
        """Return the owner in words."""
        if self.kind == "cli":
            return f"fds {self.run_id or 'on an unknown machine'}"
        return _describe_task(self.dag_id, self.run_id, self.task_id, self.map_index)


def _describe_task(dag_id: str | None, run_id: str | None, task_id: str | None, map_index: int) -> str:
    mapped = "" if map_index < 0 else f"[{map_index}]"
    return f"task {task_id}{mapped} of DAG {dag_id}, run {run_id}"
