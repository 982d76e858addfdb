"""The checkpoint as an XCom of the task that worked on the stream: visible in its run, and gone with it."""

from __future__ import annotations

from typing import Any

from airflow_provider_fds.checkpoint.store import write_and_read_back
from airflow_provider_fds.errors import CheckpointError, ConfigurationError, StorageError
from airflow_provider_fds.ledger.layout import check_stream_name
from airflow_provider_fds.ledger.position import Checkpoint
from airflow_provider_fds.reasons import Reason


def xcom_key(stream: str) -> str:
    """Return the key of a stream's XCom.

    Examples:
        >>> xcom_key("orders_to_bronze")
        'fds_checkpoint.orders_to_bronze'
    """
    check_stream_name(stream)
    return f"fds_checkpoint.{stream}"


class XComCheckpointStore:
    """An XCom of the running task that holds one checkpoint.

    Reading returns the newest XCom that this task has left, in this run or an earlier one.

    The value is a hint for the reader and visible to people; the ledger arbitrates. A later attempt finds the value of
    an earlier run (Airflow removes a task's XComs when the task starts again), a cleared old run finds the newest value
    of its time, and a first run finds nothing. In each case the ledger supplies what is missing.

    Outside a running task there is nothing to read, and writing is refused.

    Args:
        stream: Name of the stream.
    """

    #: A new run, or another task, begins without a checkpoint.
    is_kept = False

    def __init__(self, stream: str) -> None:
        self.key = xcom_key(stream)
        self._stream = stream

    @classmethod
    def for_stream(cls, stream: str, place: str) -> XComCheckpointStore:  # noqa: ARG003
        """Return the store of a stream with the checkpoint ``xcom``."""
        return cls(stream)

    @property
    def home(self) -> str:
        """Description of the XCom, for messages."""
        return f"XCom {self.key!r}"

    @property
    def discard(self) -> str:
        """How to remove the XCom, for messages."""
        return f"remove {self.home} of the newest run (Browse, XComs)"

    def read(self) -> Checkpoint | None:
        """Return the newest checkpoint of this task, or ``None`` if it has no checkpoint or no task is running.

        Raises:
            CheckpointError: The value is not a checkpoint.
            StorageError: Airflow did not answer.
        """
        ti = _running_task()
        if ti is None:
            return None
        text = self._pull(ti, include_prior_dates=True)
        return None if text is None else Checkpoint.from_json(text, home=self._home_of(ti))

    def write(self, checkpoint: Checkpoint) -> None:
        """Push the XCom and read it back.

        Raises:
            CheckpointError: Airflow's XCom backend returns another value.
            ConfigurationError: Not inside an Airflow task.
            StorageError: Airflow refused the write.
        """
        ti = _running_task()
        if ti is None:
            raise ConfigurationError(
                f"{self.home} cannot be written here: an XCom belongs to a running task, and this process is not "
                f"one. Run stream {self._stream!r} as a task, or give it checkpoint='file:<path>'",
                reason=Reason.CHECKPOINT_UNUSABLE,
            )
        write_and_read_back(
            checkpoint,
            home=self._home_of(ti),
            put=lambda text: self._push(ti, text),
            get=lambda: self._pull(ti, include_prior_dates=False),
            shadow=(
                "Two processes write XComs of one task instance, or the XCom backend ([core] xcom_backend) "
                "returns another value than it was given. Correct this; the next run takes the position from the "
                "ledger"
            ),
        )

    def _home_of(self, ti: Any) -> str:
        return f"{self.home} of task {ti.dag_id}.{ti.task_id}"

    def _pull(self, ti: Any, *, include_prior_dates: bool) -> str | None:
        try:
            # without map_indexes, an unmapped task would get a list of the values of all runs
            value = ti.xcom_pull(key=self.key, map_indexes=ti.map_index, include_prior_dates=include_prior_dates)
        except Exception as error:  # the task SDK raises many classes of errors, depending on the API server's answer
            raise StorageError(
                f"{self.home} could not be read: {error}. Try again when Airflow is available",
                reason=Reason.AIRFLOW_UNAVAILABLE,
            ) from error
        if value is None or isinstance(value, str):
            return value
        raise CheckpointError(
            f"{self._home_of(ti)} does not contain an FDS checkpoint (it is a value of type {type(value).__name__}). "
            "Only FDS may write it; `fds recover STREAM` shows what the ledger has"
        )

    def _push(self, ti: Any, text: str) -> None:
        try:
            ti.xcom_push(key=self.key, value=text)
        except Exception as error:  # the task SDK raises many classes of errors, depending on the API server's answer
            raise StorageError(
                f"{self.home} could not be written: {error}. The commit itself is in the ledger; a retry writes the "
                "XCom again",
                reason=Reason.AIRFLOW_UNAVAILABLE,
            ) from error


def _running_task() -> Any:
    """Return the running task instance, ``None`` in a trigger, on the command line and in a notebook."""
    from airflow.sdk import get_current_context

    try:
        return get_current_context()["ti"]
    except RuntimeError:
        return None
