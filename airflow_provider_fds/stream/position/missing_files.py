"""Whether a file that Spark does not find is gone, as seen from here, with the credentials of the table's storage."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import unquote

from airflow_provider_fds.delta.names import commit_key
from airflow_provider_fds.errors import FdsError, TableNotFoundError
from airflow_provider_fds.schemes import comparable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

#: How the driver names the file.
_NAMED: Final = re.compile(r"does not find a data file \((.+)\), and nothing was written")


@dataclass(frozen=True, slots=True)
class MissingFile:
    """What is known of a file that Spark does not find.

    Attributes:
        state: ``gone`` from the table's storage; ``there``, so that only Spark does not see it; ``unknown``, if it
            cannot be checked from here; or ``foreign``, if it is not a file of the batch.
        what: The file that is gone or foreign, or why nothing is known.
    """

    state: Literal["gone", "there", "unknown", "foreign"]
    what: str = ""


def find_missing(connected: ConnectedStream, parts: Sequence[PlannedBatch], message: str) -> MissingFile:
    """Look for the file that a driver's message names, else for the files of the batch until one is missing.

    Raises:
        TableNotFoundError: The whole table is missing here.
    """
    found = _NAMED.search(message)
    named = None if found is None else {comparable(found[1]), comparable(unquote(found[1]))}
    root, is_listed = comparable(unquote(connected.log.table_uri)), False
    try:
        for place in _files(connected, parts):
            if named is not None and place not in named:
                continue
            is_listed = True
            if not place.startswith(f"{root}/"):
                return MissingFile("unknown", f"{place} is outside the table")
            if connected.table.head(place[len(root) + 1 :]) is None:
                # an unmounted folder has no log either
                connected.log.latest()
                return MissingFile("gone", place)
    except FileNotFoundError:
        return MissingFile("unknown", "the batch's manifest is missing")
    except TableNotFoundError:
        raise
    except FdsError as error:
        return MissingFile("unknown", str(error))
    if found is not None and not is_listed:
        return MissingFile("foreign", found[1])
    return MissingFile("there")


def _files(connected: ConnectedStream, parts: Sequence[PlannedBatch]) -> Iterator[str]:
    """Yield the data files and deletion vectors of planned batches, decoded, as their manifests list them."""
    for part in parts:
        content, _ = connected.staging.get(connected.folder.below(f"{part.manifest}/{commit_key(0)}"))
        for line in content.splitlines():
            if not line.startswith(b'{"add"'):
                continue
            added = json.loads(line)["add"]
            yield comparable(unquote(added["path"]))
            vector = added.get("deletionVector") or {}
            if vector.get("storageType") == "p":
                yield comparable(unquote(vector["pathOrInlineDv"]))
