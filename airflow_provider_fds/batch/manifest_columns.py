"""The columns of a manifest: those that the rows of a batch have besides the source's own, and those that are read.

Only the columns that the stream reads are in it, so Spark reads only them. Parsing a DAG file imports this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Version of the source that a row comes from.
COMMIT_VERSION: Final = "_commit_version"
#: Time of that version.
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
#: What happened to a row: ``insert``, ``delete``, ``update_preimage``, ``update_postimage`` (change data feed).
CHANGE_TYPE: Final = "_change_type"

PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"


def narrowed(schema: dict[str, Any], columns: Sequence[str], *, table: str, version: int) -> dict[str, str]:
    """Remove all columns but ``columns`` from a schema (names are compared case-insensitively, as in Delta).

    Returns:
        The removed columns: logical name -> physical name.

    Raises:
        ConfigurationError: The schema lacks one of ``columns``.
    """
    known = {field["name"].lower(): field["name"] for field in schema["fields"]}
    wanted = {name.lower() for name in columns}
    if problems := [_missing(name, known) for name in columns if name.lower() not in known]:
        raise ConfigurationError(
            *(f"table {table} at version {version}: {problem}" for problem in problems),
            subject="columns to read",
            table=table,
            version=version,
            reason=Reason.INVALID_OPTION,
        )
    hidden = [field for field in schema["fields"] if field["name"].lower() not in wanted]
    schema["fields"] = [field for field in schema["fields"] if field["name"].lower() in wanted]
    return {field["name"]: (field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"]) for field in hidden}


def _missing(name: str, known: dict[str, str]) -> str:
    whole = known.get(name.partition(".")[0].lower())
    if "." in name and whole is not None:
        return f"option 'columns' names {name!r}; a column is read whole. Use {whole!r}"
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), list(known), n=1)
    hint = f"Did you mean {known[near[0]]!r}?" if near else f"Its columns are {', '.join(known.values())}"
    return f"option 'columns' names {name!r}, which the table does not have. {hint}"
