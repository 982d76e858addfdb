"""Writes an entry exactly once, after checking that the store can. Procedures of single accesses (``access.py``)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from airflow_provider_fds.delta.storage.client_limits import TRIES
from airflow_provider_fds.errors import ConfigurationError, StorageError
from airflow_provider_fds.ledger.entries.entry import Entry
from airflow_provider_fds.ledger.staging.access import Delete, Get, PutIfAbsent
from airflow_provider_fds.ledger.staging.reading import pause_before, retried
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.layout import StreamFolder
    from airflow_provider_fds.ledger.staging.access import Steps
    from airflow_provider_fds.ledger.staging.reading import LedgerReader


def write(reader: LedgerReader, entry: Entry, data: bytes) -> Steps[bool]:
    """Write an entry; return ``True`` if it is in the ledger, ``False`` if another writer has taken its number.

    A lost response does no harm: the entry is read back, and its random id shows whose it is. Bytes and number are the
    same in every attempt, so a put that arrives late either writes this very entry or finds the number taken.

    Raises:
        LedgerError: The bytes cannot be read back as an entry; nothing is written.
        StorageError: It could not be determined whether the entry was written.
    """
    # entries are never changed, so an unreadable one must not be written
    Entry.from_json(data, where=reader.where(entry.n))
    failure: StorageError | None = None
    for attempt in range(1, TRIES + 1):
        try:
            is_written = yield PutIfAbsent(reader.folder.entry(entry.n), data)
        except StorageError as error:
            if not error.retryable:
                raise
            is_written, failure = False, error
        if is_written:
            return True
        # even without an error it may be this writer's: clients of object stores repeat requests by themselves
        found = yield from reader.entry(entry.n)
        if found is not None:
            return found[0].id == entry.id
        yield pause_before(attempt)
    raise StorageError(
        f"it is unknown whether entry {reader.where(entry.n)} ({entry.action.kind}) was written to staging: "
        f"{failure or 'the store reports that the name is taken, but has no such object'}. A retry reads the "
        "ledger again and continues from its newest entry",
        reason=Reason.WRITE_UNCONFIRMED,
    ) from failure


def self_test(folder: StreamFolder, uri: str) -> Steps[None]:
    """Check that the store writes an object only if the name is free.

    Args:
        folder: The stream's folder, in which an object is written and removed.
        uri: URI of the staging root, for messages.

    Raises:
        ConfigurationError: The store ignores the condition.
        StorageError: Staging cannot be written to.
    """
    key, first, second = folder.probe(uuid.uuid4().hex), b'{"probe":1}', b'{"probe":2}'
    try:
        yield from retried(PutIfAbsent(key, first))
        was_written_again = yield from retried(PutIfAbsent(key, second))
        content = yield from retried(Get(key))
        yield from retried(Delete(key))
    except StorageError as error:
        raise type(error)(
            f"the staging {uri} of stream {folder.name!r} cannot be used: {error}. Airflow and Spark must both be "
            "able to read and write there: give them access, or set another folder (`staging=` of the stream, or "
            "`[fds] staging`)"
        ) from error
    if was_written_again or content != first:
        found = "accepted" if was_written_again else f"refused, but the object contains {content!r}"
        raise ConfigurationError(
            f"the staging {uri} of stream {folder.name!r}: this store does not honour put-if-absent: a second "
            f"write to one name was {found}, instead of refused without a change. Two runs could load the same "
            "rows twice. Use a local disk, S3, GCS or Azure, or a store that supports conditional writes "
            "(If-None-Match)",
            reason=Reason.STAGING_UNUSABLE,
        )
