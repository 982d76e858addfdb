"""What the account of a database records of a stream whose ledger was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from airflow_provider_fds.batch.sink.postgres_account import FENCE, Account
from airflow_provider_fds.batch.sink.postgres_connection import (
    NoPsycopgError,
    UnknownConnectionError,
    connected,
    psycopg,
)
from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.actions.recovery import SinkAccount, refuse_intervals

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.position import Checkpoint
    from airflow_provider_fds.ledger.values import SinkBinding
    from airflow_provider_fds.sinks import PostgresSink


class DatabaseRecord:
    """The account of a table of PostgreSQL.

    Args:
        sink: The table.
        bound: The same as the ledger has it.
    """

    def __init__(self, sink: PostgresSink, bound: SinkBinding) -> None:
        self._sink = sink
        self._bound = bound

    def of_stream(self, stream: str, uuid: str | None) -> SinkAccount | None:
        """Return what the account says of a stream, or ``None`` if it does not know it, or there is no table.

        Raises:
            ConfigurationError: The database cannot be asked, or the stream reads data intervals.
        """
        try:
            with connected(self._sink.conn_id) as connection:
                return self._read(Account(connection, self._sink.account, self._sink.parts), stream, uuid)
        except (NoPsycopgError, UnknownConnectionError) as error:
            self._refuse(stream, str(error).rstrip("."))
        except Exception as error:
            if not isinstance(error, psycopg().Error):
                raise
            self._refuse(stream, redacted(str(error).strip()))

    def of_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Return ``None``: an account keeps all batches, so that a checkpoint adds nothing."""
        del checkpoint

    def _read(self, account: Account, stream: str, uuid: str | None) -> SinkAccount | None:
        if account.is_standby():
            self._refuse(stream, "the server is a standby, which may lack the newest commits: connect to the primary")
        target = account.target()
        if target is None or target.id is None:
            return None
        # a stream of the same name may have been started anew; the newest one counts
        is_chosen = uuid is not None
        asked, uuid = uuid, account.newest_stream(target.id, stream, uuid)
        if uuid is None:
            return self._registered(account.registration(target.id, stream, asked))
        entries = account.since(uuid, target.id, 0)
        batches = [entry for entry in entries if entry.batch != FENCE]
        for entry in batches:
            if entry.interval:
                refuse_intervals(stream, entry.version, entry.interval, self._bound.target)
        newest = batches[-1]
        # an epoch without a batch has removed rows, which must be read again
        removed = [entry.version for entry in entries if entry.version > newest.version and entry.digest]
        other = None if is_chosen else account.namesake(uuid, target.id, stream, ())
        return SinkAccount(
            uri=self._bound.target,
            uuid=uuid,
            epoch=max(entry.epoch for entry in entries),
            batch_epoch=newest.epoch,
            batch_id=newest.batch,
            end=newest.end,
            digest=newest.digest,
            version=newest.version,
            kind=self._bound.kind,
            broke_at=removed[-1] if removed else None,
            namesake=other.uuid if other is not None and other.has_loaded else None,
        )

    def _registered(self, found: tuple[str, int] | None) -> SinkAccount | None:
        """Return what the account says of a stream without a batch."""
        if found is None:
            return None
        uuid, epoch = found
        uri, kind = self._bound.target, self._bound.kind
        return SinkAccount(uri, uuid, epoch, batch_epoch=0, batch_id=-1, end="", digest="", version=0, kind=kind)

    def _refuse(self, stream: str, why: str) -> NoReturn:
        raise ConfigurationError(
            f"stream {stream!r}: {self._sink.describe()} cannot be asked what it has: {why}. Connections of Airflow "
            "are known to `airflow fds`",
            reason=Reason.CONNECTION_UNUSABLE,
        )
