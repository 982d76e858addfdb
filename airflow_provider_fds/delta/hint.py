"""The log's hint about its newest checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE, MAX_INT64
from airflow_provider_fds.delta.names import LAST_CHECKPOINT

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage import Storage


class _LastCheckpoint(msgspec.Struct):
    version: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]


_DECODER: Final = msgspec.json.Decoder(_LastCheckpoint)


def hinted_version(storage: Storage) -> int | None:
    """Return the version that ``_last_checkpoint`` names, ``None`` if there is none or it cannot be read.

    It only decides where a listing starts: if it is torn or wrong, it only costs a request.
    """
    try:
        return _DECODER.decode(storage.get(LAST_CHECKPOINT)[0]).version
    except (FileNotFoundError, *DAMAGE):
        return None


__all__ = ["hinted_version"]
