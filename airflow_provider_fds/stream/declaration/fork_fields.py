"""What the declaration of a fork consists of: the fields of another stream with a name of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.credentials import redacted_uri
from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Options of a start, and of a read that has its own: a fork begins at another stream's position instead.
_STARTS: Final = ("starting_version", "starting_timestamp", "on_changed_start")
_BOUNDED: Final = ("version_as_of", "timestamp_as_of")

#: Arguments of a stream that a fork may have otherwise, besides its options.
_OWN: Final = ("allow_overlap", "checkpoint", "expect", "max_rejected", "rejects")


def fork_fields(fields: Mapping[str, Any], name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a fork, as ``DeltaStream.to_dict`` has them.

    Args:
        fields: The fields of the stream that it continues.
        name: Name of the fork.
        changes: Options and arguments that differ.

    Raises:
        ConfigurationError: A change is an option of the start.
    """
    if places := [key for key in changes if key in _STARTS]:
        raise ConfigurationError(
            f"a fork begins at the position of stream {fields['name']!r}, so it has no option {places[0]!r}. Omit it.",
            table=redacted_uri(fields["table"]),
        )
    own = {key: changes[key] for key in _OWN if key in changes}
    options = {**fields["options"], **{key: value for key, value in changes.items() if key not in _OWN}}
    found = {**fields, "name": name, "fork_of": fields["name"], "options": options}
    if found["checkpoint"].startswith("file:"):
        # two streams cannot keep their offsets in one file
        found["checkpoint"] += f".{name}"
    return {**found, **own}


def fork_problems(
    name: object, read: object, backfill: object, fork_of: object, options: Mapping[str, Any]
) -> list[str]:
    """Return what is wrong with a stream that is declared as a fork of the stream ``fork_of``; ``None``: of none."""
    if fork_of is None:
        return []
    if not isinstance(fork_of, str) or not fork_of:
        return [f"fork_of must be the name of a stream, got {fork_of!r}."]
    problems = [f"stream {name!r} cannot be a fork of itself; give it another name."] if fork_of == name else []
    if read == "data_interval":
        problems.append("a stream with read='data_interval' has no position to fork; declare another stream.")
    if backfill is not None:
        problems.append("backfill and fork_of cannot be combined.")
    bounds = [key for key in _BOUNDED if key in options]
    return problems + [f"a stream with {key} reads one version; declare another stream, not a fork." for key in bounds]
