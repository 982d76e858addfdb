"""``fds_dags``: the DAGs of a file of streams."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import DAG

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fleet.streams_file.file import read_fleet_groups
from airflow_provider_fds.lazy import load_class
from airflow_provider_fds.operators.delta_fleet import DeltaFleetOperator
from airflow_provider_fds.operators.delta_ingest import DeltaIngestOperator
from airflow_provider_fds.operators.refused_streams import RefusedStreamsOperator
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping

    from airflow_provider_fds.fleet.streams_file.group import FleetGroup
    from airflow_provider_fds.fleet.value import FleetStream
    from airflow_provider_fds.stream.monitoring.alerts import StreamAlerts

#: Id of the task of each DAG.
_TASK_ID: Final = "load"
#: Id of the task that fails for streams which cannot be loaded with others of the file.
_REFUSED_TASK_ID: Final = "refused_streams"
#: Airflow 3.3 starts a continuous DAG without a start date once and never again. Nothing is caught up, so the date does
#: not matter.
_SOME_START: Final = datetime(2020, 1, 1, tzinfo=UTC)

#: Variable of a DAG file with the file of streams of each DAG, by its id.
_DECLARED: Final = "_fds_dags"


def fds_dags(
    file: str | os.PathLike[str],
    namespace: MutableMapping[str, Any],
    *,
    dag_arguments: Mapping[str, Any] | None = None,
    task_arguments: Mapping[str, Any] | None = None,
) -> dict[str, DAG]:
    """Declare the DAGs of a file of streams: one for each group, or for each stream of a group (``dag_per: stream``).

    Each DAG has one task, ``load``. Streams that clash, such as two with one name, are left out of it: a task
    ``refused_streams`` fails for them, or the ``load`` of their own DAG. At most one run of a DAG is active, and past
    runs are not caught up: a run loads everything that is new. Reads the file and nothing else.

    Args:
        file: The file; a relative path begins at the folder of the DAG file.
        namespace: ``globals()`` of the DAG file, where Airflow looks for DAGs. The DAGs are added by their ids.
        dag_arguments: Arguments of ``DAG`` for all DAGs, such as ``start_date`` and ``default_args``; they decide over
            those of the file.
        task_arguments: Arguments of the operator for all tasks, such as ``retries``; they decide over the file's.

    Returns:
        The DAGs by id.

    Raises:
        ConfigurationError: Reports all problems of the file at once if there is another one than a clash; or two
            DAGs have one id, or the namespace has it.

    Examples:
        >>> from airflow_provider_fds import fds_dags
        >>> fds_dags("streams.yaml", globals())  # doctest: +SKIP
    """
    dag_file = namespace.get("__file__")
    path = Path(dag_file).parent / file if isinstance(dag_file, str) else Path(file)
    dags: dict[str, DAG] = {}
    for dag in _declared(read_fleet_groups(path), dag_arguments, task_arguments):
        if dags.setdefault(dag.dag_id, dag) is not dag:
            raise ConfigurationError(
                f"{file}: two of its DAGs have the id {dag.dag_id!r}. Give a group another dag_id.",
                reason=Reason.WIRING_INVALID,
            )
    # a module that is loaded again keeps its variables
    declared = namespace.setdefault(_DECLARED, {})
    for dag_id, dag in dags.items():
        if dag_id not in namespace:
            declared[dag_id] = str(path)
        if (other := declared.get(dag_id)) != str(path):
            what = f"a variable {dag_id!r}" if other is None else f"a DAG {dag_id!r} of {other}"
            raise ConfigurationError(
                f"the DAG file already has {what}, which is also the id of a DAG of {file}. Give the group another "
                "dag_id, or rename the variable.",
                reason=Reason.WIRING_INVALID,
            )
        if isinstance(dag_file, str):
            # otherwise it would be this file
            dag.fileloc = dag_file
        namespace[dag_id] = dag
    return dags


def _declared(
    groups: Iterable[FleetGroup],
    dag_arguments: Mapping[str, Any] | None,
    task_arguments: Mapping[str, Any] | None,
) -> Iterator[DAG]:
    for group in groups:
        if group.dag_per == "group":
            dag = _dag(group, group.dag_id, dag_arguments)
            if group.streams or group.patterns:
                DeltaFleetOperator(dag=dag, **{**_fleet_arguments(group), **(task_arguments or {})})
            if group.refused:
                problems = dict.fromkeys(one for found in group.refused.values() for one in found)
                RefusedStreamsOperator(dag=dag, task_id=_REFUSED_TASK_ID, problems=tuple(problems))
            yield dag
            continue
        for name, refused in group.refused.items():
            dag = _dag(group, f"{group.dag_id}.{name}", dag_arguments)
            RefusedStreamsOperator(dag=dag, task_id=_TASK_ID, problems=refused)
            yield dag
        for one in group.streams:
            dag = _dag(group, f"{group.dag_id}.{one.name}", dag_arguments)
            DeltaIngestOperator(dag=dag, **{**_stream_arguments(group, one), **(task_arguments or {})})
            yield dag


def _dag(group: FleetGroup, dag_id: str, arguments: Mapping[str, Any] | None) -> DAG:
    given = {"tags": list(group.tags), "catchup": False, "max_active_runs": 1, **(arguments or {})}
    schedule = given.pop("schedule", group.schedule)
    if schedule == "@continuous":
        given = {"start_date": _SOME_START, **given}
    return DAG(dag_id, schedule=schedule, **given)


def _fleet_arguments(group: FleetGroup) -> dict[str, Any]:
    return {
        **_arguments(group),
        "streams": list(group.streams),
        "patterns": list(group.patterns),
        "parallelism": group.parallelism,
        "on_stream_failure": group.on_stream_failure,
        "on_gone": group.on_gone,
        "max_bytes_in_flight": group.max_bytes_in_flight,
    }


def _stream_arguments(group: FleetGroup, one: FleetStream) -> dict[str, Any]:
    return {**_arguments(group), "stream": one.stream, "sink": one.sink}


def _arguments(group: FleetGroup) -> dict[str, Any]:
    """Return what both operators accept; a value that the file does not have is left to the operator."""
    found: dict[str, Any] = {
        "task_id": _TASK_ID,
        "conn_id": group.conn_id,
        "pool": group.pool,
        "run_time_limit": group.run_time_limit,
        "batches_per_application": group.batches_per_application,
        "poll_interval": group.poll_interval,
        "linger": group.linger,
        "alerts": _alerts(group),
    }
    return {name: value for name, value in found.items() if value is not None} | {"wait": group.wait, **group.spark}


def _alerts(group: FleetGroup) -> StreamAlerts | None:
    if group.alerts is None or not group.notifiers:
        return group.alerts
    notifiers = []
    for name in group.notifiers:
        try:
            notifiers.append(load_class(name))
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"the notifier {name!r} of group {group.name!r} cannot be imported: {error}. Name an object of a "
                "module that DAG files can import, as 'pkg.module:name'.",
                reason=Reason.WIRING_INVALID,
            ) from error
    return replace(group.alerts, notifiers=tuple(notifiers))
