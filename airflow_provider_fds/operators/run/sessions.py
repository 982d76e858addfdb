"""A stream in the hands of the task instance that works on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_fds.hooks.settings import deployment
from airflow_provider_fds.hooks.stream_context import working_context
from airflow_provider_fds.operators.run.owner import owner_is_running, task_actor, task_owner

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream import DeltaStream
    from airflow_provider_fds.stream.connected_stream import StreamContext


def session_context(
    context: Any,
    stream: DeltaStream,
    sink: Sink | None,
    *,
    plan_task_id: str | None = None,
    plan_map_index: int | None = None,
    is_three_task: bool = False,
) -> StreamContext:
    """Return the context of the stream for the task instance of ``context``, the owner of what it plans.

    Args:
        context: The task's context.
        stream: The stream, rendered.
        sink: Its sink, rendered, if FDS writes to it or checks it.
        plan_task_id: The task that planned, if it is another task of this run.
        plan_map_index: That task's map index.
        is_three_task: Whether plan, load and commit are separate tasks.

    Raises:
        ConfigurationError: A connection, the staging folder or a URI is invalid.
    """
    ti = context["ti"]
    name = deployment()
    owner = task_owner(ti, name, task_id=plan_task_id, map_index=plan_map_index, is_three_task=is_three_task)
    return working_context(
        stream,
        actor=task_actor(ti, name),
        owner=owner,
        owner_is_running=owner_is_running(ti, name),
        sink=sink,
        run_since=getattr(context.get("dag_run"), "run_after", None),
    )
