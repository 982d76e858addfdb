"""What the sensor waits for without a stream: its arguments as a condition, and the evidence of the previous run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from airflow_provider_fds.delta.moments import moment_text
from airflow_provider_fds.errors import ConfigurationError, StorageError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.stream.polling.table_condition import TableCondition

#: XCom of the sensor in which the next run finds what this run saw.
SEEN_KEY: Final = "fds_seen"

_WITHOUT_STREAM: Final = ("version", "changed_since", "committed_after")


class TableArguments(NamedTuple):
    """The sensor's arguments that need no stream. Any of them may be a template until the task runs."""

    table: str | None
    storage_conn_id: str | None
    catalog_conn_id: str | None
    version: int | str | None
    changed_since: str | None
    committed_after: datetime | str | None

    def problems(self, *, has_stream: bool, with_stream: list[str]) -> list[str]:
        """Return what is wrong, one sentence each.

        Args:
            has_stream: Whether the sensor has a stream.
            with_stream: Names of the arguments given that only a stream can use.
        """
        given = [name for name in self._fields if getattr(self, name) is not None]
        if has_stream:
            if not given:
                return []
            own = "a stream has its own table and connection and waits for what it has not committed"
            return [f"stream cannot be combined with {_names(given)}: {own}. Omit stream to wait for a table alone."]
        if self.table is None:
            ways = "version=, changed_since= or committed_after="
            return [f"the sensor needs stream=…, or table=… with {ways}, to wait without a stream."]
        problems = []
        if with_stream:
            problems.append(f"{_names(with_stream)} can only be used with stream; omit it to wait for table.")
        kinds = [name for name in _WITHOUT_STREAM if name in given]
        if len(kinds) != 1:
            problems.append(
                "table needs exactly one of version, changed_since and committed_after, "
                f"got {_names(kinds) if kinds else 'none'}."
            )
        if self.changed_since is not None and self.changed_since != "last_run":
            problems.append(f"changed_since must be 'last_run', got {self.changed_since!r}.")
        if _is_known(self.version) and _version(self.version) is None:
            problems.append(f"version must be an integer of at least 0, got {self.version!r}.")
        if isinstance(self.committed_after, str) and _is_known(self.committed_after):
            try:
                moment_text(self.committed_after)
            except ConfigurationError as error:
                problems.append(f"committed_after: {error}.")
        return problems

    def condition(self, context: Any, storage: Storage | None) -> TableCondition:
        """Return the condition of a run, from the rendered arguments.

        Args:
            context: Context of the task.
            storage: Storage of the table; ``None``: its catalog has no table of this name.

        Raises:
            ConfigurationError: A rendered value is no version or no time, or the run has no logical date.
            StorageError: Airflow or storage did not answer.
        """
        from airflow_provider_fds.stream.polling.table_condition import TableCondition

        if self.version is not None:
            version = _version(self.version)
            if version is None:
                raise ConfigurationError(
                    f"version must be an integer of at least 0, got {self.version!r}. Correct the argument, or the "
                    "template that it comes from.",
                    table=self.table,
                )
            return TableCondition(version=version)
        if self.committed_after is not None:
            return TableCondition(committed_after=moment_text(self.committed_after))
        return _since_last_run(context, self.table, storage)


def seen_by(storage: Storage, version: int) -> dict[str, Any] | None:
    """Return the XCom for :data:`SEEN_KEY`: the newest version, and when its commit file was written, if known."""
    from airflow_provider_fds.delta.reader.log import DeltaLog

    log = DeltaLog(storage)
    written_at = log.written_at(version)
    if written_at is None and not log.probe(version):
        return None
    return {"table": storage.uri, "version": version, "modified_ms": written_at}


def _since_last_run(context: Any, table: str | None, storage: Storage | None) -> TableCondition:
    from airflow_provider_fds.stream.polling.table_condition import TableCondition

    ti, dag_run = context["ti"], context["dag_run"]
    if dag_run.logical_date is None:
        raise ConfigurationError(
            f"changed_since='last_run' needs the previous run, but run {dag_run.run_id!r} has no logical date, "
            "by which Airflow orders runs: it was started by an asset, or by hand without a logical date. Give the "
            "DAG a schedule by time, give the run a logical date, or use version= or committed_after=.",
            table=table,
            reason=Reason.DATA_INTERVAL_UNUSABLE,
        )
    try:
        previous = ti.get_previous_dagrun(state="success")
        seen = (
            None
            if previous is None
            else ti.xcom_pull(task_ids=ti.task_id, run_id=previous.run_id, key=SEEN_KEY, map_indexes=ti.map_index)
        )
    except Exception as error:  # the task SDK raises many classes of errors, depending on the API server's answer
        raise StorageError(
            f"Airflow did not return the previous run of this DAG: {error}. Try again when Airflow is available",
            table=table,
            reason=Reason.AIRFLOW_UNAVAILABLE,
        ) from error
    version = _version(seen.get("version")) if isinstance(seen, dict) else None
    # another commit file, or none: the table was replaced or its log cleaned up, so the version means nothing
    now = None if version is None or storage is None else seen_by(storage, version)
    if now is not None and seen == now:
        # a run that is skipped counts as successful, too: it passes on what it began with
        ti.xcom_push(key=SEEN_KEY, value=seen)
        return TableCondition(after_version=version, after_modified_ms=now["modified_ms"])
    return TableCondition(after_version=-1)


def _version(value: object) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _is_known(value: object) -> bool:
    """Whether a value is the one that the task will get: no template, and no result of another task."""
    return isinstance(value, (int, float, str)) and "{{" not in str(value)


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
