"""The checkpoint in Airflow's asset state store, shown on the page of the source table's asset (Airflow 3.3)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from airflow_provider_fds.airflow_version import is_airflow_at_least
from airflow_provider_fds.checkpoint.store import write_and_read_back
from airflow_provider_fds.delta.storage.open import canonical_uri
from airflow_provider_fds.errors import ConfigurationError, StorageError
from airflow_provider_fds.ledger.layout import check_stream_name
from airflow_provider_fds.ledger.position import Checkpoint
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.schemes import with_plain_scheme

#: The oldest Airflow that has the store.
_OLDEST: Final = (3, 3)
_NOT_FOUND: Final = 404


def table_asset_uri(table: str) -> str:
    """Return the URI of the asset of a source table: ``s3a`` and ``s3n`` become ``s3``, a path a ``file`` URI."""
    return with_plain_scheme(table if table.startswith("catalog://") else canonical_uri(table))


def check_asset_state_store() -> None:
    """Refuse an Airflow without the store.

    Raises:
        ConfigurationError: Airflow is older than 3.3.
    """
    if not is_airflow_at_least(*_OLDEST):
        raise ConfigurationError(
            "checkpoint='asset' needs the asset state store of Airflow 3.3 or newer. Use checkpoint='variable', the "
            "default, or upgrade Airflow.",
            reason=Reason.CHECKPOINT_UNUSABLE,
        )


class AssetCheckpointStore:
    """A key of the state store of the source table's asset, which holds one checkpoint.

    Airflow keeps the values of an asset only while a DAG refers to it. The operators declare it as an inlet. If their
    DAG is removed, the values are deleted, and a later run takes the position from the ledger.

    Outside a task and a trigger there is nothing to read, and writing is refused.

    Args:
        stream: Name of the stream.
        table: URI of its table.
    """

    #: Values are deleted with the last DAG that refers to the asset.
    is_kept = False

    def __init__(self, stream: str, table: str) -> None:
        check_stream_name(stream)
        self.key = f"fds.{stream}"
        self._stream = stream
        self._uri = table_asset_uri(table)

    @classmethod
    def for_stream(cls, stream: str, place: str) -> AssetCheckpointStore:
        """Return the store of a stream with the checkpoint ``asset``; the place is its table."""
        return cls(stream, place)

    @property
    def home(self) -> str:
        """Description of the value, for messages."""
        return f"state {self.key!r} of asset {self._uri!r}"

    @property
    def discard(self) -> str:
        """How to remove the value, for messages."""
        return f"remove {self.home} on the page of the asset"

    def read(self) -> Checkpoint | None:
        """Return the checkpoint, or ``None`` if there is none, or no task or trigger is running.

        Raises:
            CheckpointError: The value is not a checkpoint.
            ConfigurationError: Airflow is older than 3.3.
            StorageError: Airflow did not answer.
        """
        state = self._state()
        text = None if state is None else self._get(state)
        return None if text is None else Checkpoint.from_json(text, home=self.home)

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the value and read it back. If no DAG refers to the asset, this is a warning.

        Raises:
            CheckpointError: Airflow's state store returns another value.
            ConfigurationError: Not inside an Airflow task, or Airflow is older than 3.3.
            StorageError: Airflow refused the write.
        """
        state = self._state()
        if state is None:
            raise ConfigurationError(
                f"{self.home} cannot be written here: only a running task can write it, and this process is not one. "
                f"Run stream {self._stream!r} as a task, or give it checkpoint='file:<path>'",
                reason=Reason.CHECKPOINT_UNUSABLE,
            )
        write_and_read_back(
            checkpoint,
            home=self.home,
            put=lambda text: self._put(state, text),
            get=lambda: self._get(state),
            shadow=(
                "The state store of the workers ([workers] state_store_backend) does not return the value that was "
                "written. Correct this; the next run takes the position from the ledger"
            ),
        )

    def _state(self) -> Any:
        """Return Airflow's accessor of the asset, ``None`` outside a task and a trigger."""
        check_asset_state_store()
        from airflow.sdk import Asset
        from airflow.sdk.execution_time import task_runner
        from airflow.sdk.execution_time.context import AssetStateStoreAccessor

        # set only where there is a supervisor to talk to
        if getattr(task_runner, "SUPERVISOR_COMMS", None) is None:
            return None
        return AssetStateStoreAccessor(uri=Asset(self._uri).uri)

    def _get(self, state: Any) -> str | None:
        try:
            value = state.get(self.key)
        except Exception as error:  # the task SDK raises many classes of errors, depending on the API server's answer
            raise StorageError(
                f"{self.home} could not be read: {error}. Try again when Airflow is available",
                reason=Reason.AIRFLOW_UNAVAILABLE,
            ) from error
        if value is None or isinstance(value, str):
            return value
        return msgspec.json.encode(value).decode()

    def _put(self, state: Any, text: str) -> None:
        try:
            # as an object, which the page of the asset shows field by field
            state.set(self.key, msgspec.json.decode(text))
        except Exception as error:  # the task SDK raises many classes of errors, depending on the API server's answer
            if _status_of(error) == _NOT_FOUND:
                # no DAG refers to the asset; reading the value back shows that there is none
                return
            raise StorageError(
                f"{self.home} could not be written: {error}. The commit itself is in the ledger; a retry writes the "
                "value again",
                reason=Reason.AIRFLOW_UNAVAILABLE,
            ) from error


def _status_of(error: Exception) -> int | None:
    """Return the HTTP status of the API server's refusal: from the supervisor, or in-process under ``dag.test()``."""
    detail = getattr(getattr(error, "error", None), "detail", None)
    if isinstance(detail, dict):
        return detail.get("status_code")
    return getattr(getattr(error, "response", None), "status_code", None)
