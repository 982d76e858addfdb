"""The checkpoint in an Airflow Variable: visible in the UI, exportable, and kept when tasks are cleared."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from airflow_provider_fds.checkpoint.store import write_and_read_back
from airflow_provider_fds.errors import CheckpointError, ConfigurationError, StorageError
from airflow_provider_fds.ledger.layout import check_stream_name
from airflow_provider_fds.ledger.position import Checkpoint
from airflow_provider_fds.reasons import Reason

#: Words in a key for which Airflow shows ``***`` instead of the value (``DEFAULT_SENSITIVE_FIELDS`` of its secrets
#: masker, 3.1 to 3.3), without words that contain a shorter one. Before it searches, Airflow lowers the key and
#: replaces every run of characters other than letters, digits and ``_`` by ``_``.
_MASKED: Final = (
    "access_key",
    "api_key",
    "apikey",
    "auth_header",
    "authorization",
    "bearer",
    "connection_string",
    "dsn",
    "keyfile_dict",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "proxies",
    "proxy",
    "secret",
    "service_account",
    "service_key",
    "token",
    "webhook_url",
)
_MASKED_PATTERN: Final = re.compile("|".join(word.replace("_", r"(?:_|\W+)") for word in _MASKED), re.IGNORECASE)


def variable_key(stream: str) -> str:
    """Return the key of a stream's Variable: ``fds.<name>``.

    Airflow masks the value of a Variable whose key contains a word such as ``token``: the offset would show as ``***``.
    A ``~`` after the word's first letter prevents the match, and cannot be part of another stream's name.

    Examples:
        >>> variable_key("orders_to_bronze"), variable_key("auth_tokens")
        ('fds.orders_to_bronze', 'fds.auth_t~okens')
    """
    check_stream_name(stream)
    key = f"fds.{stream}"
    while (match := _MASKED_PATTERN.search(key)) is not None:
        key = f"{key[: match.start() + 1]}~{key[match.start() + 1 :]}"
    return key


class VariableCheckpointStore:
    """An Airflow Variable that holds one checkpoint as JSON.

    Reading works wherever Airflow finds Variables; writing works only inside a running task. Airflow is imported when
    the Variable is first used.

    Args:
        stream: Name of the stream.
        key: Key of the Variable, if it is not :func:`variable_key` of the stream.
    """

    is_kept = True

    def __init__(self, stream: str, key: str | None = None) -> None:
        self.key = variable_key(stream) if key is None else key
        self._stream = stream

    @classmethod
    def for_stream(cls, stream: str, place: str) -> VariableCheckpointStore:  # noqa: ARG003
        """Return the store of a stream with the checkpoint ``variable``."""
        return cls(stream)

    @property
    def home(self) -> str:
        """Description of the Variable, for messages."""
        return f"Airflow Variable {self.key!r}"

    @property
    def discard(self) -> str:
        """The command that removes the Variable."""
        return f"`airflow variables delete {self.key}`"

    def read(self) -> Checkpoint | None:
        """Return the checkpoint, or ``None`` if the Variable does not exist or Airflow did not answer.

        Airflow does not distinguish the two cases. Without a checkpoint, the next run finds the position in the ledger.

        Raises:
            CheckpointError: The environment hides the Variable, or its value is not a checkpoint.
        """
        self._refuse_shadow()
        text = self._get()
        return None if text is None else Checkpoint.from_json(text, home=self.home)

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the Variable and read it back.

        Raises:
            CheckpointError: The environment or a secrets backend hides the Variable.
            ConfigurationError: Not inside an Airflow task.
            StorageError: Airflow refused the write.
        """
        self._refuse_shadow()
        write_and_read_back(
            checkpoint,
            home=self.home,
            put=self._put,
            get=self._get,
            shadow=(
                "A Variable of this key in a secrets backend ([secrets] backend) takes precedence over Airflow's "
                f"own. Remove {self.key!r} there. Nothing is lost: the next run takes the position from the ledger"
            ),
        )

    def _refuse_shadow(self) -> None:
        name = f"AIRFLOW_VAR_{self.key.upper()}"
        if (found := os.environ.get(name)) is not None:
            raise CheckpointError(
                f"{self.home} is hidden by the environment variable {name}, which takes precedence: the position "
                f"of stream {self._stream!r} would never move. Found: {found!r}. Unset {name} where this ran "
                "(worker, triggerer); the next run takes the position from the ledger"
            )

    def _get(self) -> str | None:
        from airflow.sdk import Variable

        try:
            value: Any = Variable.get(self.key, default=None)
        except Exception as error:  # the task SDK raises many classes of errors, depending on the API server's answer
            raise StorageError(
                f"{self.home} could not be read: {error}. Try again when Airflow is available",
                reason=Reason.AIRFLOW_UNAVAILABLE,
            ) from error
        return None if value is None else str(value)

    def _put(self, text: str) -> None:
        from airflow.sdk import Variable

        try:
            Variable.set(
                self.key, text, description=f"Position of the FDS stream {self._stream}; only FDS may write it"
            )
        except ImportError as error:
            raise ConfigurationError(
                f"{self.home} cannot be written here: only a running task can write Variables, and this process "
                f"is not one ({error}). Run it as a task (or with `dag.test()`), or keep the checkpoint in a file "
                "(`fds … --checkpoint FILE`, `FileCheckpointStore`)",
                reason=Reason.CHECKPOINT_UNUSABLE,
            ) from error
        except Exception as error:  # the task SDK raises many classes of errors, depending on the API server's answer
            raise StorageError(
                f"{self.home} could not be written: {error}. The commit itself is in the ledger; a retry writes the "
                "Variable again",
                reason=Reason.AIRFLOW_UNAVAILABLE,
            ) from error
