"""Actions on the page in Airflow's audit log, as Airflow records what people do in its own UI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from airflow.models import Log
from airflow.utils.session import create_session

from airflow_provider_fds.credentials import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping


def record_action(action: str, user: str, *, dag_id: str | None, task_id: str | None, facts: Mapping[str, Any]) -> None:
    """Add an entry ``fds_<action>`` to the audit log, and commit it.

    Like Airflow's own, it says that a user has asked for the action: the stream's ledger says whether it took effect.

    Args:
        action: Name of the action.
        user: Name of the user.
        dag_id: The DAG that loads the stream, on whose page the entry shows; ``None`` if none does.
        task_id: Its task.
        facts: What was asked for. Credentials in it are replaced.
    """
    extra = redacted(msgspec.json.encode(facts).decode())
    with create_session() as session:
        entry = Log(f"fds_{action}", owner=user, owner_display_name=user, extra=extra, dag_id=dag_id, task_id=task_id)
        session.add(entry)
