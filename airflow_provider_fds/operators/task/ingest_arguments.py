"""Checks the arguments of ``DeltaIngestOperator`` and reports all problems at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import Asset

from airflow_provider_fds.durations import parse_duration
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.sinks import Sink
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.declaration.sink_needs import missing_columns_problem, whole_commits_problem
from airflow_provider_fds.triggers.poll_arguments import removed_problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Arguments of SparkSubmitOperator that the user cannot set here: the application is FDS's own.
_OWN_ARGUMENTS: Final = ("application", "application_args", "java_class")

#: Former names of arguments.
_FORMER_NAMES: Final = {"batches_per_run": "batches_per_application", "stream_timeout": "batch_timeout"}


def reads_by_interval(stream: object) -> bool:
    """Whether the stream's runs are independent of each other; ``False`` if unknown, for a stream from an XCom."""
    if isinstance(stream, DeltaStream):
        return stream.reads_by_interval
    return isinstance(stream, dict) and stream.get("read") == "data_interval"


def check_reading(stream: object, sink: object, run_time_limit: object, grace: object) -> None:
    """Refuse arguments that do not fit the way the stream reads; skips what is unknown while the DAG is parsed.

    Raises:
        ConfigurationError: Reports all problems at once.
    """
    problems = []
    if run_time_limit is not None and (isinstance(run_time_limit, str) or parse_duration(run_time_limit) is None):
        problems.append(
            f"run_time_limit must be a timedelta or seconds, such as timedelta(minutes=12), not {run_time_limit!r}."
        )
    if isinstance(stream, DeltaStream) and not stream.reads_by_interval and grace is not None:
        problems.append(f"grace requires read='data_interval', but stream {stream.name!r} reads by offset. Omit grace.")
    if reads_by_interval(stream) and run_time_limit is not None:
        problems.append(
            "run_time_limit cannot be used with read='data_interval': an interval is loaded completely, and no "
            "later run would load the rest. Omit it; Airflow's execution_timeout ends a task that takes too long."
        )
    if isinstance(stream, DeltaStream) and not stream.reads_by_interval and isinstance(sink, Sink) and sink.replaces:
        problems.append(
            f"stream {stream.name!r} reads by offset: each of its batches would replace the previous one. "
            "A sink that replaces requires read='data_interval'; use one that appends."
        )
    if reads_by_interval(stream) and isinstance(sink, Sink) and sink.needs_order:
        problems.append(
            f"read='data_interval' requires a sink that accepts intervals in any order, but {type(sink).__name__} "
            "needs the order of the source's commits. Read by offset (omit read), or use a sink that replaces or "
            "appends."
        )
    if isinstance(stream, DeltaStream) and isinstance(sink, Sink):
        found = (whole_commits_problem(stream, sink), missing_columns_problem(stream, sink))
        problems += [problem for problem in found if problem is not None]
    if problems:
        raise ConfigurationError(*problems, subject="DeltaIngestOperator")


def time_problems(**given: object) -> list[str]:
    """Return what is wrong with times that must be longer than none, one sentence each; ``None`` is not given."""
    return [
        f"{name} must be a positive timedelta, seconds, or text such as '12m', got {value!r}."
        for name, value in given.items()
        if value is not None and ((found := parse_duration(value)) is None or found.total_seconds() <= 0)
    ]


def check_linger(stream: object, linger: object, *, deferrable: object = False) -> None:
    """Refuse a time that is none, one for a stream whose runs have an end, and one for a task that leaves its worker.

    Raises:
        ConfigurationError: Reports all problems at once.
    """
    problems = time_problems(linger=linger)
    if linger is not None and reads_by_interval(stream):
        problems.append(
            "linger cannot be used with read='data_interval': an interval is over when its run begins. Omit it."
        )
    problems += deferral_problems(linger, deferrable=deferrable)
    if problems:
        raise ConfigurationError(*problems, subject="DeltaIngestOperator")


def deferral_problems(linger: object, *, deferrable: object) -> list[str]:
    """Return what is wrong with leaving the worker, one sentence each."""
    if not isinstance(deferrable, bool):
        return [f"deferrable must be True or False, got {deferrable!r}."]
    if deferrable and linger is not None:
        why = "a run that lingers stays on its worker with its driver"
        return [f"linger cannot be used with deferrable=True: {why}. Omit one of them."]
    return []


def check_asking(stream: object, approvers: object, ask_timeout: object) -> None:
    """Refuse arguments about a question that is never asked, and approvers that are not users.

    Raises:
        ConfigurationError: Reports all problems at once.
    """
    problems = time_problems(ask_timeout=ask_timeout)
    given = [name for name, value in (("approvers", approvers), ("ask_timeout", ask_timeout)) if value is not None]
    if given and isinstance(stream, DeltaStream) and stream.options.on_violation != "ask":
        problems.append(
            f"{', '.join(given)} has no effect without on_violation='ask' on stream {stream.name!r}. Omit it, or set "
            "the option."
        )
    if approvers is not None and not (isinstance(approvers, (list, tuple)) and all(map(_is_user, approvers))):
        problems.append(
            f"approvers must be a list of ids of Airflow's users, or of dicts with 'id' and 'name', got {approvers!r}."
        )
    if problems:
        raise ConfigurationError(*problems, subject="DeltaIngestOperator")


def _is_user(value: object) -> bool:
    if isinstance(value, dict):
        return set(value) == {"id", "name"} and all(map(_is_user, value.values()))
    return isinstance(value, str) and bool(value)


def check_conf_by_size(conf_by_size: object, kwargs: Mapping[str, Any]) -> None:
    """Refuse an invalid ``conf_by_size``, and arguments that would make its settings ineffective.

    Raises:
        ConfigurationError: Reports all problems at once.
    """
    resources = kwargs.get("resources")
    if resources is not None and (callable(resources) or isinstance(resources, (list, tuple))):
        raise ConfigurationError(
            "resources is an argument of every Airflow task, for its worker. Spark settings by the size of a batch are "
            "the argument conf_by_size."
        )
    if conf_by_size is None:
        return
    from airflow_provider_fds.backends.conf_by_size import ConfBySize, overriding

    if problems := overriding(ConfBySize.parse(conf_by_size).settings, kwargs):
        raise ConfigurationError(*problems, subject="DeltaIngestOperator")


def check_asset_partitions(asset_partitions: object, stream: object, outlets: object) -> None:
    """Refuse an invalid ``asset_partitions``, and arguments with which it has no effect.

    Raises:
        ConfigurationError: Reports all problems at once.
    """
    if asset_partitions is None:
        return
    problems = []
    if not isinstance(asset_partitions, str) or not asset_partitions.strip():
        problems.append(
            "asset_partitions must be a date format such as '%Y-%m-%d', or a partition column of the source, got "
            f"{asset_partitions!r}."
        )
    elif "%" in asset_partitions and not reads_by_interval(stream):
        problems.append(
            f"asset_partitions={asset_partitions!r} formats the start of a data interval, so it requires a stream with "
            "read='data_interval'. For this stream, name a partition column of the source."
        )
    given = outlets if isinstance(outlets, (list, tuple)) else [outlets]
    if not any(isinstance(outlet, Asset) for outlet in given):
        problems.append(
            "asset_partitions requires outlets=[Asset(…)]: Airflow does not accept partition keys for an asset alias, "
            "which is the default outlet."
        )
    if problems:
        raise ConfigurationError(*problems, subject="DeltaIngestOperator")


def argument_problems(
    kwargs: Mapping[str, Any], on_no_data: object, batches_per_application: object, operator: str
) -> list[str]:
    """Return what is wrong with the arguments that all operators with a job of FDS's own have, one sentence each.

    Args:
        kwargs: The other arguments, for SparkSubmitOperator.
        on_no_data: See :class:`DeltaIngestOperator`.
        batches_per_application: See there.
        operator: Name of the operator's class.
    """
    problems = [
        f"{name} is not an argument of {operator}: it runs FDS's own job. For your own job, use "
        "DeltaPlanOperator, SparkSubmitOperator and DeltaCommitOperator."
        for name in _OWN_ARGUMENTS
        if name in kwargs
    ]
    problems += [f"{name} is {now} now." for name, now in _FORMER_NAMES.items() if name in kwargs]
    problems += removed_problems(kwargs)
    if kwargs.get("durable"):
        problems.append(
            "durable=True is not available: a retry checks the ledger and the sink instead of rejoining a job. Omit it."
        )
    if kwargs.get("deferrable"):
        problems.append(
            f"deferrable=True is not available for {operator}: only DeltaIngestOperator and DeltaFleetOperator leave "
            "their worker while Spark works. Omit it."
        )
    if on_no_data not in ("skip", "succeed"):
        problems.append(f"on_no_data must be 'skip' or 'succeed', got {on_no_data!r}.")
    if not isinstance(batches_per_application, int) or batches_per_application < 1:
        problems.append(f"batches_per_application must be an integer of at least 1, got {batches_per_application!r}.")
    return problems


def check_arguments(
    kwargs: Mapping[str, Any], on_no_data: str, on_busy: str, batches_per_application: int, of_waiting: Sequence[str]
) -> None:
    """Refuse arguments that do not belong to the operator, or are out of range.

    Args:
        kwargs: The other arguments, for SparkSubmitOperator.
        on_no_data: See :class:`DeltaIngestOperator`.
        on_busy: See there.
        batches_per_application: See there.
        of_waiting: Problems with the arguments of waiting.

    Raises:
        ConfigurationError: Reports all problems at once.
    """
    problems = argument_problems(kwargs, on_no_data, batches_per_application, "DeltaIngestOperator")
    if on_busy not in ("skip", "wait", "fail"):
        problems.append(f"on_busy must be 'skip', 'wait' or 'fail', got {on_busy!r}.")
    problems += of_waiting
    if problems:
        raise ConfigurationError(*problems, subject="DeltaIngestOperator")
