"""``fds plan --file FILE --dry-run``: what each stream of a file has left to load. Reads only."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.cli.estimate import NoPositionError, Outcome
from airflow_provider_fds.cli.fleet import fleet
from airflow_provider_fds.cli.messages import end_of, shown
from airflow_provider_fds.cli.terminal import Waiting
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError, FdsError
from airflow_provider_fds.sizes import format_bytes, format_count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from airflow_provider_fds.cli.fleet.fleet import FoundGroup
    from airflow_provider_fds.fleet.value import FleetStream
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream

logger = logging.getLogger(__name__)

_HEADER: Final = ("STREAM", "BATCHES", "FILES", "BYTES", "TABLE", "SINK")
_RIGHT: Final = frozenset({"BATCHES", "FILES", "BYTES"})

#: What a file replaces.
_OF_ONE: Final = (
    ("table", "TABLE"),
    ("stream", "--stream"),
    ("option", "--option"),
    ("offset", "--from"),
    ("max_batches", "--max-batches"),
)


@dataclass(frozen=True)
class _Left:
    """What a stream has left to load.

    Attributes:
        stream: The stream.
        totals: See :func:`~airflow_provider_fds.cli.estimate.totals`; empty if the stream cannot be planned.
        outcome: How planning ended.
    """

    stream: FleetStream
    totals: dict[str, Any]
    outcome: Outcome

    @property
    def batches(self) -> int:
        return int(self.totals.get("batches", 0))


def plan_fleet(
    arguments: argparse.Namespace,
    estimate: Callable[[argparse.Namespace, DeltaStream], tuple[dict[str, Any], Outcome]],
) -> int:
    """Perform ``fds plan --file FILE --dry-run``.

    Args:
        arguments: The arguments.
        estimate: Returns the totals of what a stream has left, and how that ends.
    """
    fleet.refuse_together(arguments, _OF_ONE)
    if not (arguments.dry_run or arguments.estimate):
        raise ConfigurationError(
            "fds plan --file writes nothing, so it needs --dry-run. To plan and load all streams, use fds run --file"
        )
    if arguments.batches_per_application < 1:
        raise ConfigurationError(
            f"--batches-per-application must be 1 or more, got {arguments.batches_per_application}"
        )
    arguments.estimate = True

    def left_of(one: FleetStream) -> _Left:
        try:
            return _Left(one, *estimate(fleet.for_stream(arguments, one), one.stream))
        except NoPositionError as error:
            return _Left(one, {}, Outcome(None, waiting=str(error)))
        except FdsError as error:
            return _Left(one, {}, Outcome(error))

    with Waiting("planning", is_shown=arguments.output == "text"):
        groups = list(fleet.find_fleet(arguments, dry_run=True))
        found = [fleet.in_threads(left_of, group.streams) for group in groups]
    _warn_without_staging(arguments, [stream for group in groups for stream in group.streams])
    everything = [one for group in found for one in group]
    applications = sum(
        _applications(left, one.group.batches_per_application or arguments.batches_per_application)
        for one, left in zip(groups, found, strict=True)
    )
    _show(arguments, groups, everything, applications)
    errors = [one.outcome.error for one in everything if one.outcome.error is not None]
    problems = fleet.messages_of(groups)
    return max([error.exit_code for error in errors] + [ConfigurationError.exit_code] * bool(problems), default=EXIT_OK)


def _warn_without_staging(arguments: argparse.Namespace, streams: Sequence[FleetStream]) -> None:
    """Warn if streams are planned as new ones because nobody says where their positions are kept."""
    without = [one.name for one in streams if not (one.stream.staging or arguments.staging)]
    if without:
        logger.warning(
            "%s planned as if new, because no staging folder is known that may have a position: %s. Give --staging, "
            "or set AIRFLOW__FDS__STAGING",
            format_count(len(without), "stream"),
            ", ".join(without[:5]) + ", …" * (len(without) > 5),  # noqa: PLR2004
        )


def _applications(group: Sequence[_Left], batches_per_application: int) -> int:
    """Return how many Spark applications load a group, one after the other: each loads some batches of each stream."""
    return max((-(-one.batches // batches_per_application) for one in group), default=0)


def _show(
    arguments: argparse.Namespace, groups: Sequence[FoundGroup], found: Sequence[_Left], applications: int
) -> None:
    batches, files, size = (
        sum(one.totals.get(key, 0) for one in found) for key in ("batches", "num_files", "num_bytes")
    )
    problems = fleet.messages_of(groups)
    if arguments.output == "json":
        for one in found:
            end = end_of(one.outcome.error, is_finished=bool(one.outcome.finished), waiting=one.outcome.waiting)
            place = {"stream": one.stream.name, "table": one.stream.stream.table, "sink": one.stream.sink.describe()}
            print(json.dumps({**place, **one.totals, **end}))
        total = {"streams": len(found), "batches": batches, "num_files": files, "num_bytes": size}
        print(json.dumps({**total, "applications": applications, "problems": problems}))
        return
    rows = [_row(one) for one in found]
    widths = [max(map(len, column)) for column in zip(_HEADER, *rows, strict=True)]
    for row in (_HEADER, *rows) if rows else ():
        cells = [
            text.rjust(width) if name in _RIGHT else text.ljust(width)
            for name, text, width in zip(_HEADER, row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())
    for line in fleet.describe_patterns(groups):
        print(line)
    print(
        f"{format_count(len(found), 'stream')}: {format_count(batches, 'batch', 'batches')}, "
        f"{format_count(files, 'file')}, {format_bytes(size)}, in {format_count(applications, 'Spark application')}"
    )
    for one in found:
        if one.outcome.error is not None:
            print(f"{one.stream.name}: stopped: {shown(one.outcome.error, arguments)}")
        elif one.outcome.waiting and not one.totals:
            print(f"{one.stream.name}: {one.outcome.waiting}")
    for problem in problems:
        print(problem)


def _row(one: _Left) -> tuple[str, ...]:
    if not one.totals:
        numbers: tuple[str, ...] = ("unknown", "", "")
    elif one.batches:
        numbers = (f"{one.batches:,}", f"{one.totals['num_files']:,}", format_bytes(one.totals["num_bytes"]))
    else:
        numbers = ("0", "", "")
    return (one.stream.name, *numbers, one.stream.stream.table, one.stream.sink.describe())
