"""``fds plan --estimate``: how much there is to load. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from airflow_provider_fds.errors import FdsError
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream

#: Batches in one Spark application by default, as in ``DeltaIngestOperator`` and ``fds run``.
BATCHES_PER_APPLICATION: Final = 200

#: What cannot be combined with ``--estimate``: where to begin, and where to stop.
_REFUSED: Final = (("offset", "--from"), ("max_batches", "--max-batches"))


class Outcome(NamedTuple):
    """How planning ended: the error that stopped it, whether there is more, why the stream is finished (or ``""``).

    ``note`` is what is said about start options that have no effect, ``waiting`` about data that is waiting for more.
    """

    error: FdsError | None
    is_more: bool = False
    finished: str = ""
    note: str | None = None
    waiting: str = ""


class NoPositionError(ConfigurationError):
    """The stream has no position until its next run: a requested epoch is not open yet, or its start has not come."""


def check_arguments(arguments: argparse.Namespace) -> None:
    """Refuse arguments that an estimate has no use for."""
    problems = [
        f"--estimate and {flag} cannot be combined: the estimate is about everything that is left. Omit one of them."
        for name, flag in _REFUSED
        if getattr(arguments, name)
    ]
    if arguments.batches_per_application < 1:
        problems.append(f"--batches-per-application must be 1 or more, got {arguments.batches_per_application}")
    if problems:
        raise ConfigurationError(*problems, subject="arguments")


def known_stream(arguments: argparse.Namespace, stream: DeltaStream) -> ConnectedStream | None:
    """Return the stream that staging has, ``None`` if it does not exist yet or no staging is given. Writes nothing.

    Raises:
        NoPositionError: The stream has no position from which to read, until its next run.
        ConfigurationError: It reads data intervals.
        LedgerError: It was retired.
    """
    from airflow_provider_fds.ledger.entries.refusals import retired
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

    if not arguments.staging:
        return None
    state = Ledger(common.open_folder(arguments, arguments.staging), stream.name).find()
    if state.phase == "empty":
        return None
    arguments.deployment = state.deployment  # a stream of any owner may be estimated
    connected = ConnectedStream(stream, common.context_of(arguments, owner=Owner.of_plan(state.deployment)))
    state = connected.load()
    if state.retired is not None:
        raise retired(state, "plan")
    if state.reads_by_interval:
        raise ConfigurationError(
            f"stream {stream.name!r} reads data intervals, so it has no position from which to read. "
            "Show a range with --option starting_timestamp=… and --option ending_timestamp=…, without --stream."
        )
    if state.position is None:
        raise NoPositionError(
            f"stream {stream.name!r} has no position: its next run opens the requested epoch, or waits for its start. "
            f"See `fds status {stream.name}`."
        )
    return connected


def totals(rows: Iterable[dict[str, Any]], state: StreamState | None, batches_per_application: int) -> dict[str, Any]:
    """Return the totals of batches that are printed as ``rows``.

    Args:
        rows: The batches.
        state: The stream's state, whose runs have measured what a batch costs; ``None`` for a new stream.
        batches_per_application: Maximum number of batches in one application.

    Returns:
        ``first_version`` and ``last_version`` (inclusive, ``None`` without batches), ``num_files``, ``num_bytes``,
        ``num_rows`` (``None`` if unknown for one batch), ``batches``, ``applications``, and ``seconds`` of the Spark
        driver without its start, ``None`` if no run has measured them.
    """
    first = last = None
    files = size = batches = 0
    num_rows: int | None = 0
    for row in rows:
        first = row["first_version"] if first is None else first
        last = row["last_version"]
        files += row["num_files"]
        size += row["num_bytes"]
        num_rows = None if num_rows is None or row["num_rows"] is None else num_rows + row["num_rows"]
        batches += 1
    rate = None if state is None else _seconds_per_byte(state)
    return {
        "first_version": first,
        "last_version": last,
        "num_files": files,
        "num_bytes": size,
        "num_rows": num_rows,
        "batches": batches,
        "applications": -(-batches // batches_per_application),
        "seconds": 0.0 if not batches else None if rate is None else round(rate * size, 1),
    }


def lines(found: dict[str, Any]) -> list[str]:
    """Return the totals as lines for people."""
    first, last = found["first_version"], found["last_version"]
    versions = "none" if first is None else str(first) if first == last else f"{first} to {last}"
    shown = {
        "versions": versions,
        "files": found["num_files"],
        "bytes": found["num_bytes"],
        "rows": found["num_rows"],
        "batches": found["batches"],
        "applications": found["applications"],
        "seconds": found["seconds"],
    }
    return [f"{name:12} {_text(value)}" for name, value in shown.items()]


def _text(value: object) -> str:
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _seconds_per_byte(state: StreamState) -> float | None:
    """Return the rate of the largest of the newest runs: in small ones, the fixed cost of a batch dominates."""
    measured = [run for run in state.runs if run.num_bytes and run.measures.seconds]
    if not measured:
        return None
    largest = max(measured, key=lambda run: run.num_bytes)
    return sum(largest.measures.seconds.values()) / largest.num_bytes
