"""What a task does while another run owns the next batches of its stream."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from airflow_provider_fds.airflow_version import sdk_exception

if TYPE_CHECKING:
    from airflow_provider_fds.errors import StreamBusyError

BusyPolicy = Literal["skip", "wait", "fail"]

#: How long a waiting task leaves its worker before it checks again.
_WAIT: Final = timedelta(seconds=60)


def give_way(policy: BusyPolicy, busy: StreamBusyError) -> NoReturn:
    """End this attempt: ``skip`` the task, ``wait`` (come back in a minute), or ``fail`` (a retry may find it free).

    Waiting means ``up_for_reschedule``: it holds neither a worker nor the task's ``max_active_tis_per_dag``, which
    the owner may need for its own retry. Airflow before 3.1.7 heeds the minute for sensors alone
    (``ReadyToRescheduleDep``), so the task comes back with the next scheduling.
    """
    from airflow.providers.common.compat.sdk import AirflowSkipException

    if policy == "skip":
        raise AirflowSkipException(str(busy)) from busy
    if policy == "wait":
        raise sdk_exception("AirflowRescheduleException")(datetime.now(UTC) + _WAIT) from busy
    raise busy
