"""A token in staging that changes with each decision of a person, for those who watch many ledgers.

A decision, such as a rewind or a hold, is an entry of one ledger. Who reads the token *before* the ledgers and finds
the same one later knows that no decision was made in between, and need not ask each ledger. The token changes before
the entry is written and again after it:

- a reader between the two remembers the first token, and finds the second one later;
- a process that dies between the two has changed the token.

The token is a hint. Where it cannot be written, or where an older FDS makes decisions, nobody is told, so a reader must
still look into each ledger from time to time.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.layout import FLEET_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.delta.storage.storage import Storage

#: The token; no fleet's files have this name. It exists once somebody has read it.
DECISIONS_KEY: Final = f"{FLEET_FOLDER}/@decisions"

_log: Final = logging.getLogger(__name__)


def read_token(storage: Storage) -> str | None:
    """Return the token, or ``None`` if that is not possible. One GET; the first reader creates it.

    Args:
        storage: Root of staging.
    """
    try:
        try:
            return storage.get(DECISIONS_KEY)[0].decode(errors="replace") or None
        except FileNotFoundError:
            token = uuid.uuid4().hex
            return token if storage.put_if_absent(DECISIONS_KEY, token.encode()) else None
    except FdsError as error:
        _log.debug("Whether decisions were made is unknown.", exc_info=error)
        return None


@contextmanager
def deciding(storage: Storage) -> Iterator[None]:
    """Change the token before and after the body, which writes a decision. One HEAD each if nobody reads it."""
    _change(storage)
    try:
        yield
    finally:
        _change(storage)


def _change(storage: Storage) -> None:
    try:
        if storage.head(DECISIONS_KEY) is not None:
            storage.put(DECISIONS_KEY, uuid.uuid4().hex.encode())
    except FdsError as error:
        _log.warning(
            "%s/%s cannot be written, so a fleet that has nothing to load may notice this decision up to 20 runs "
            "later: %s",
            storage.uri,
            DECISIONS_KEY,
            error,
        )
