"""Single accesses to staging, and the functions that perform them in order.

The ledger's procedures are generators: they yield an access and are sent its result. This lets a test stop a writer
between any two accesses, or answer an access the way failing storage would.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from airflow_provider_fds.delta.storage.prefetch import get_all
from airflow_provider_fds.errors import StorageError

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import Storage

_T = TypeVar("_T")


class Get(msgspec.Struct, frozen=True):
    """Read an object: its bytes, or ``None`` if it does not exist."""

    key: str


class GetAll(msgspec.Struct, frozen=True):
    """Read objects that do not depend on each other: for each its bytes, or ``None`` if it does not exist."""

    keys: tuple[str, ...]


class ListNames(msgspec.Struct, frozen=True):
    """List the names in ``folder`` that are greater than ``after``, ascending."""

    folder: str
    after: str | None = None


class PutIfAbsent(msgspec.Struct, frozen=True):
    """Write an object if its name is free; returns whether it was written."""

    key: str
    data: bytes


class Put(msgspec.Struct, frozen=True):
    """Write or overwrite an object."""

    key: str
    data: bytes


class Delete(msgspec.Struct, frozen=True):
    """Remove an object."""

    key: str


class Pause(msgspec.Struct, frozen=True):
    """Wait before the next access."""

    seconds: float


Access = Get | GetAll | ListNames | PutIfAbsent | Put | Delete | Pause

#: A procedure: it yields accesses, is sent their results (or thrown their ``StorageError``), and returns its own
#: result.
Steps = Generator[Access, Any, _T]


def answer(access: Access, storage: Storage) -> Any:
    """Perform one access and return its result.

    Raises:
        StorageError: The storage failed.
    """
    match access:
        case Get(key):
            try:
                return storage.get(key)[0]
            except FileNotFoundError:
                return None
        case GetAll(keys):
            return get_all(storage, keys)
        case ListNames(folder, after):
            return [meta.key.rsplit("/", 1)[-1] for meta in storage.list_after(folder, after)]
        case PutIfAbsent(key, data):
            return storage.put_if_absent(key, data)
        case Put(key, data):
            return storage.put(key, data)
        case Delete(key):
            return storage.delete(key)
        case Pause(seconds):
            return time.sleep(seconds)


def perform(steps: Steps[_T], storage: Storage) -> _T:
    """Perform a procedure to its end and return its result."""
    try:
        access = next(steps)
        while True:
            try:
                result = answer(access, storage)
            except StorageError as error:
                access = steps.throw(error)
            else:
                access = steps.send(result)
    except StopIteration as stop:
        value: _T = stop.value
        return value
