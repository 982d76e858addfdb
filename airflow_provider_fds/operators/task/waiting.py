"""Waiting before a load: its arguments and the deferral."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import AirflowSensorTimeout, conf

from airflow_provider_fds.durations import format_duration, parse_duration
from airflow_provider_fds.hooks.settings import poll_interval_seconds
from airflow_provider_fds.triggers.poll_arguments import grace_problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.stream import DeltaStream
    from airflow_provider_fds.stream.run.session import StreamSession

#: Arguments of DeltaTableVersionSensor that set how long and how often to poll; ``None``: not given.
ARGUMENTS: Final = ("poll_interval", "timeout", "grace")


@dataclass(frozen=True, slots=True)
class Waiting:
    """How a task waits in the triggerer until its stream has something to do.

    Attributes:
        poll_interval: Seconds between two polls.
        timeout: Maximum seconds that one attempt waits, over all its deferrals.
        grace: See :class:`DeltaIntervalTrigger`.
    """

    poll_interval: float
    timeout: float
    grace: timedelta | None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Waiting:
        """Return the arguments, with ``None`` replaced by the sensor's defaults. The arguments were checked before."""
        interval, timeout = given["poll_interval"], given["timeout"]
        return cls(
            poll_interval=poll_interval_seconds() if interval is None else seconds_of(interval),
            timeout=conf.getfloat("sensors", "default_timeout") if timeout is None else seconds_of(timeout),
            grace=parse_duration(given["grace"]),
        )

    @property
    def deadline(self) -> float:
        """When an attempt that begins now has waited long enough, in seconds since the epoch."""
        return time.time() + self.timeout

    def wait(
        self, operator: Any, context: Any, stream: DeltaStream, *, deadline: float, was_in_vain: bool = False
    ) -> bool:
        """Defer the task; return ``False`` if the deadline has passed.

        Args:
            operator: The operator; its ``execute_complete`` gets the event and the deadline.
            context: The task's context.
            stream: The stream, rendered.
            deadline: In seconds since the epoch, the same over all deferrals of an attempt.
            was_in_vain: Whether the last trigger woke the task for nothing. The next trigger then pauses before its
                first poll, so that task and trigger cannot wake each other in a tight loop.
        """
        if (remaining := deadline - time.time()) <= 0:
            return False
        from airflow_provider_fds.triggers.deferral import waiting_trigger

        operator.defer(
            trigger=waiting_trigger(
                context,
                stream,
                grace=self.grace,
                poll_interval=self.poll_interval,
                pauses_first=was_in_vain,
            ),
            method_name="execute_complete",
            kwargs={"deadline": deadline},
            timeout=timedelta(seconds=remaining),
        )
        return True

    def wait_for_interval(self, operator: Any, context: Any, session: StreamSession, *, deadline: float) -> None:
        """Defer the task, unless the run's interval is complete or its end has been resolved in the ledger.

        Raises:
            AirflowSensorTimeout: The deadline has passed. A stream with an offset leaves the rest to its next run, but
                no other run loads this interval.
        """
        from airflow_provider_fds.triggers.deferral import poll_data_interval

        stream = session.stream
        if poll_data_interval(context, stream, self.grace) is not None or session.scope.is_end_fixed():
            return
        if not self.wait(operator, context, stream, deadline=deadline):
            waited = format_duration(timedelta(seconds=self.timeout))
            raise AirflowSensorTimeout(f"The interval is not over in table {stream.table} after {waited}.")


def waiting_problems(given: Mapping[str, Any], *, wait: object, deferrable: object = False) -> list[str]:
    """Return what is wrong with the arguments of waiting, one sentence each.

    Args:
        given: The arguments, or ``None`` if the user gave none.
        wait: Whether to wait.
        deferrable: Whether reports of a driver are polled.
    """
    if not isinstance(wait, bool):
        return [f"wait must be True or False, got {wait!r}."]
    polled = ("poll_interval",) if deferrable else ()
    if not wait and (idle := [name for name in ARGUMENTS if given[name] is not None and name not in polled]):
        return [f"{', '.join(idle)} has no effect without wait=True. Omit it, or set wait=True."]
    problems = grace_problems(given["grace"])
    for name, least in (("poll_interval", "above 0"), ("timeout", "of at least 0")):
        value = given[name]
        is_time = isinstance(value, (int, float, timedelta)) and not isinstance(value, bool)
        if value is not None and not (
            is_time and (seconds_of(value) > 0 or (name == "timeout" and not seconds_of(value)))
        ):
            problems.append(f"{name} must be a timedelta or a number of seconds {least}, got {value!r}.")
    return problems


def seconds_of(time_span: timedelta | float) -> float:
    """Return a time span in seconds."""
    return time_span.total_seconds() if isinstance(time_span, timedelta) else float(time_span)
