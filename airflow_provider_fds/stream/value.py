"""``DeltaStream``: a named reading position of one table, as a value for a DAG file."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_fds.credentials import redacted_uri, secret_part
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Valid stream names: a name becomes a folder in staging and part of an Airflow Variable's key and of URLs.
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")

_TEMPLATE_MARKERS: Final = ("{{", "{%")


class DeltaStream:
    """A named reading position of one Delta table: its start, its batch size and its rules.

    A stream is a value: it does no I/O, holds no credentials and compares by content. Its position is in the ledger in
    staging and, visible to people, in the checkpoint. Each name has one position: use another name for another consumer
    of the same table.

    Args:
        name: Name of the position: at most 100 characters of ``[A-Za-z0-9._-]``, not starting with a dot.
        table: URI (``s3://…``, ``file:///…``) or path of the source table.
        storage_conn_id: Airflow connection for the storage of table and staging; ``None`` to use the environment's
            credentials.
        read: ``"offset"``: from the last committed offset to the newest version. ``"data_interval"``: each run reads
            the versions committed in its own data interval, start inclusive, end exclusive. There is no offset, and
            runs may execute in any order.
        checkpoint: Where to keep the committed offset: ``"variable"`` (an Airflow Variable), ``"xcom"`` (an XCom of the
            task that committed) or ``"file:<path>"``.
        staging: URI of the folder for ledger and manifests; ``None`` uses ``[fds] staging``.
        options: Source options by name; Delta's own camelCase spelling is accepted.
        **source_options: Source options in snake case, see ``docs/options.md``.

    Raises:
        ConfigurationError: With all problems at once.

    Example:
        >>> stream = DeltaStream("orders_to_bronze", table="s3://lake/orders", starting_timestamp="2026-01-01")
        >>> stream.name, stream.options.max_files_per_batch
        ('orders_to_bronze', 1000)
    """

    __slots__ = ("checkpoint", "name", "options", "read", "staging", "storage_conn_id", "table")

    name: str
    table: str
    storage_conn_id: str | None
    read: Literal["offset", "data_interval"]
    checkpoint: str
    staging: str | None
    options: SourceOptions

    def __init__(
        self,
        name: str,
        table: str,
        *,
        storage_conn_id: str | None = None,
        read: str = "offset",
        checkpoint: str = "variable",
        staging: str | None = None,
        options: Mapping[str, Any] | None = None,
        **source_options: Any,
    ) -> None:
        problems = _name_problems(name)
        problems += _text_problems("table", table)
        if staging is not None:
            problems += _text_problems("staging", staging)
        if storage_conn_id is not None:
            problems += _text_problems("storage_conn_id", storage_conn_id)
        problems += _read_problems(read)
        problems += _checkpoint_problems(checkpoint)
        values: dict[str, Any] = {}
        for key, value in {**(options or {}), **source_options}.items():
            if _is_template(value):
                problems.append(
                    f"option {key!r} is a template or another task's output ({value!r}). A stream's position outlives "
                    "a run, so its options must be the same in every run: write the value itself."
                )
            else:
                values[key] = value
        doubled = sorted(set(options or {}) & set(source_options))
        problems += [f"option {key!r} is given twice, in options and as an argument." for key in doubled]
        parsed: SourceOptions | None = None
        try:
            parsed = SourceOptions.parse(values, by_interval=read == "data_interval")
        except ConfigurationError as error:
            problems += error.problems
        if problems or parsed is None:
            raise ConfigurationError(
                *problems, subject=f"stream {name!r}", table=redacted_uri(table) if isinstance(table, str) else None
            )
        for key, value in (
            ("name", name),
            ("table", table),
            ("storage_conn_id", storage_conn_id),
            ("read", read),
            ("checkpoint", checkpoint),
            ("staging", staging),
            ("options", parsed),
        ):
            object.__setattr__(self, key, value)

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"DeltaStream is immutable: {key} cannot be set to {value!r}; make another stream")

    def __delattr__(self, key: str) -> None:
        raise AttributeError(f"DeltaStream is immutable: {key} cannot be removed")

    def __reduce__(self) -> tuple[Any, ...]:
        return (DeltaStream.from_dict, (self.to_dict(),))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeltaStream) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))

    def __repr__(self) -> str:
        return f"DeltaStream({self.name!r}, table={self.table!r})"

    @property
    def reads_by_interval(self) -> bool:
        """Whether each run reads its own data interval; then there is no offset."""
        return self.read == "data_interval"

    def to_dict(self) -> dict[str, Any]:
        """Return the stream as JSON-compatible values that :meth:`from_dict` accepts. Contains no secret."""
        return {
            "name": self.name,
            "table": self.table,
            "storage_conn_id": self.storage_conn_id,
            "read": self.read,
            "checkpoint": self.checkpoint,
            "staging": self.staging,
            "options": self.options.to_dict(),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> DeltaStream:
        """Build a stream from the result of :meth:`to_dict`, or from a mapping of the constructor's arguments.

        Raises:
            ConfigurationError: Name or table is missing, or a value is invalid.
        """
        fields = dict(value)
        missing = [key for key in ("name", "table") if key not in fields]
        if missing:
            raise ConfigurationError(
                f"a stream needs 'name' and 'table'; {', '.join(missing)} is missing in {fields!r}."
            )
        return cls(fields.pop("name"), fields.pop("table"), **fields)

    @classmethod
    def coerce(cls, value: object) -> DeltaStream:
        """Return ``value`` if it is a stream; build a stream if it is a mapping (such as a value from an XCom).

        Raises:
            ConfigurationError: The value is anything else.
        """
        if isinstance(value, DeltaStream):
            return value
        if isinstance(value, dict):
            return cls.from_dict(value)
        raise ConfigurationError(
            f"stream must be a DeltaStream or a dict of its arguments, got {type(value).__name__}: {value!r}."
        )

    def serialize(self) -> dict[str, Any]:
        """Return what Airflow shows of the stream in a serialised DAG."""
        return self.to_dict()

    def rendered(self, render: Callable[[str], str]) -> DeltaStream:
        """Return a copy with ``table`` and ``staging`` rendered by ``render`` (Airflow's templates).

        Raises:
            ConfigurationError: A rendered value is invalid.
        """
        fields = self.to_dict()
        fields["table"] = render(self.table)
        if self.staging is not None:
            fields["staging"] = render(self.staging)
        return self if fields == self.to_dict() else DeltaStream.from_dict(fields)


def _is_template(value: object) -> bool:
    """Whether Airflow would have to replace the value at run time: a Jinja template, or another task's output."""
    if isinstance(value, str):
        return any(marker in value for marker in _TEMPLATE_MARKERS)
    # recognises XComArg and similar classes without importing Airflow
    return hasattr(value, "iter_references")


def _name_problems(name: object) -> list[str]:
    if _is_template(name):
        return [
            (
                f"name {name!r} is a template or another task's output. The name finds the position again in the next "
                "run, so it must be the same in every run: write it out, one DeltaStream per table."
            )
        ]
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        return [f"name {name!r} must be 1 to 100 characters of letters, digits, '.', '_' and '-', the first no dot."]
    return []


def _text_problems(argument: str, value: object) -> list[str]:
    if isinstance(value, str) and value.strip():
        part = secret_part(value) if "://" in value and not _is_template(value) else None
        if part is None:
            return []
        return [
            (
                f"{argument} {redacted_uri(value)!r} has {part}, which everyone who can see the DAG would see. Put "
                "credentials into the Airflow connection named by storage_conn_id."
            )
        ]
    if _is_template(value):
        return [
            (
                f"{argument} is another task's output ({value!r}). Airflow does not look inside a stream, so the task "
                "would run before its input: give the text itself, or a Jinja template."
            )
        ]
    return [f"{argument} must be a non-empty string, got {value!r}."]


def _read_problems(read: object) -> list[str]:
    if read in ("offset", "data_interval"):
        return []
    return [f"read must be 'offset' or 'data_interval', got {read!r}."]


def _checkpoint_problems(checkpoint: object) -> list[str]:
    if checkpoint in ("variable", "xcom"):
        return []
    if isinstance(checkpoint, str) and checkpoint.startswith("file:") and checkpoint.removeprefix("file:"):
        return []
    near = get_close_matches(str(checkpoint), ["variable", "xcom", "file:<path>"], n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return [f"checkpoint must be 'variable', 'xcom' or 'file:<path>', got {checkpoint!r}.{hint}"]
