"""The metadata that FDS writes into its commits in the log of the sink (``userMetadata``).

The driver writes it, and both sides read it. Standard library only, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Optional

from airflow_provider_fds.batch.checked_json import SPEC_FORMAT

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec, Expectations, FenceSpec

#: The required fields of ``userMetadata``.
_OF_A_FENCE: Dict[str, type] = {"stream": str, "uuid": str, "epoch": int, "fence": int}
_OF_A_BATCH: Dict[str, type] = {"stream": str, "uuid": str, "epoch": int, "batch_id": int, "end": str, "digest": str}
_OF_A_WRITE: Dict[str, type] = {"stream": str, "uuid": str, "epoch": int, "batch_id": int, "digest": str, "write": str}


def commit_metadata(
    batch: BatchSpec,
    attempt_id: str,
    settings: Dict[str, str],
    sink_kind: str = "delta_append",
    seen: Optional[Dict[str, Any]] = None,
    same_values: Optional[Dict[str, Any]] = None,
    expectations: Optional[Expectations] = None,
) -> str:
    """Return the ``userMetadata`` of the batch's commit in the sink, JSON on one line.

    Args:
        batch: The batch.
        attempt_id: The attempt that writes it.
        settings: Settings of the session that may change what is read.
        sink_kind: Kind of the sink.
        seen: What the streams had loaded into the sink before, see :meth:`~.loaded_streams.Loaded.to_metadata`;
            ``None``: not known.
        same_values: Columns, in lower case, with the string or whole number that they have in each row of the batch.
        expectations: What its rows were tested for; a later attempt that finds the commit counts by the same.
    """
    return json.dumps(
        {
            "fds": SPEC_FORMAT,
            "stream": batch.stream,
            "uuid": batch.uuid,
            "epoch": batch.epoch,
            "batch_id": batch.batch_id,
            "start": batch.start,
            "end": batch.end,
            "after": batch.after,
            "digest": batch.manifest_digest,
            "attempt": attempt_id,
            "settings": settings,
            **({} if batch.interval is None else {"interval": batch.interval}),
            **({} if sink_kind == "delta_append" else {"sink": sink_kind}),
            **({} if seen is None else {"seen": seen}),
            **({"same_values": same_values} if same_values else {}),
            **({} if expectations is None else {"expect": expectations.expect}),
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def removal_metadata(fence: FenceSpec) -> Optional[Dict[str, Any]]:
    """Return what a fence's commit records about the rows that it removes, or ``None`` if it removes none."""
    if fence.removes is None:
        return None
    return {"what": fence.removes, "from_version": fence.from_version}


def fence_metadata(
    fence: FenceSpec, attempt_id: str, removed_to: Optional[int] = None, newest: Optional[int] = None
) -> str:
    """Return the ``userMetadata`` of a fence's commit in the sink, JSON on one line.

    Args:
        fence: The fence.
        attempt_id: The attempt that writes it.
        removed_to: If nothing had to be removed: newest version of the sink (inclusive) that was checked. ``None``: the
            commit itself removes rows, or removal was not requested.
        newest: The stream's newest transaction before it, if only a log checkpoint records it.
    """
    removal = removal_metadata(fence)
    if removal is not None and removed_to is not None:
        removal["to"] = removed_to
    return json.dumps(
        {
            "fds": SPEC_FORMAT,
            "stream": fence.stream,
            "uuid": fence.uuid,
            "epoch": fence.epoch,
            "fence": fence.txn_version,
            "attempt": attempt_id,
            **({} if removal is None else {"removes": removal}),
            **({} if newest is None else {"newest": newest}),
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def read_commit_metadata(text: Optional[str]) -> Optional[Dict[str, Any]]:
    """Return the ``userMetadata`` of a commit that FDS made, or ``None`` for any other text.

    Anyone who can write to the sink may write any text there, so a text that lacks a field, or has one of another type,
    is not FDS's.
    """
    value = _object_of(text, "fds")
    if value is None or not _has_fields(value, _OF_A_FENCE if "fence" in value else _OF_A_BATCH):
        return None
    newest = value.get("newest", 0)
    if type(newest) is not int or not 0 <= newest < 1 << 63:
        return None
    if not isinstance(value.get("interval", ""), str) or not isinstance(value.get("sink", ""), str):
        return None
    return value


def write_metadata(batch: BatchSpec, write: str) -> str:
    """Return the ``userMetadata`` of a write that a user's function makes, JSON on one line.

    The table is not a sink of FDS, so :func:`read_commit_metadata` does not read this text.
    """
    return json.dumps(
        {
            "fds_write": SPEC_FORMAT,
            "stream": batch.stream,
            "uuid": batch.uuid,
            "epoch": batch.epoch,
            "batch_id": batch.batch_id,
            "digest": batch.manifest_digest,
            "write": write,
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def read_write_metadata(text: Optional[str]) -> Optional[Dict[str, Any]]:
    """Return the ``userMetadata`` of a write of a function, or ``None`` for any other text."""
    value = _object_of(text, "fds_write")
    return value if value is not None and _has_fields(value, _OF_A_WRITE) else None


def _object_of(text: Optional[str], marker: str) -> Optional[Dict[str, Any]]:
    """Return the JSON object in a text if its ``marker`` is the format of this version, else ``None``."""
    if not text or not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get(marker) != SPEC_FORMAT or isinstance(value[marker], bool):
        return None
    return value


def _has_fields(value: Dict[str, Any], wanted: Dict[str, type]) -> bool:
    for name, kind in wanted.items():
        found = value.get(name)
        if type(found) is not kind or (isinstance(found, int) and not 0 <= found < 1 << 63):
            return False
    return True
