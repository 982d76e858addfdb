"""What became of each stream of a fleet, and of the fleet."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from airflow_provider_fds.errors import FdsError, FleetFailedError, FleetRejectedError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.stream.attempt.result import LoadResult

#: How a run of a fleet ended for one stream:
#:   loaded      it has committed batches, and nothing went wrong
#:   unchanged   its table has no new version and its ledger no new entry; nothing else was read
#:   up_to_date  it was read, and has nothing to load
#:   waiting     it has data that waits for more or for another stream, or its start is in the future
#:   finished    it has read everything up to its end
#:   paused      it is held by a person or in quarantine
#:   busy        another run owns its next batches, and is still running
#:   left        it was not started, or not finished, because the run had to end; the next run continues
#:   gone        its table was loaded and is no longer there; someone should know
#:   failed      an error; the batches before it are committed
FleetOutcome: TypeAlias = Literal[
    "loaded", "unchanged", "up_to_date", "waiting", "finished", "paused", "busy", "left", "gone", "failed"
]

#: The order in which a summary names them.
OUTCOMES: Final[tuple[FleetOutcome, ...]] = (
    "loaded", "unchanged", "up_to_date", "waiting", "finished", "left", "busy", "paused", "gone", "failed",
)  # fmt: skip
#: The outcomes whose streams a summary names.
_NAMED: Final = frozenset({"left", "busy", "paused", "gone", "failed"})
#: How many streams it names at most, for each outcome.
_MOST_NAMES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOutcome:
    """What became of one stream.

    Attributes:
        stream: Its name.
        outcome: How the run ended for it.
        result: What the run has committed, also before a failure; ``None`` if nothing.
        reason: Why nothing was loaded, or not everything; a sentence, or empty.
        error: Why it failed.
        stopped: The error with which its next run fails or pauses: a version that it cannot pass.
    """

    stream: str
    outcome: FleetOutcome
    result: LoadResult | None = None
    reason: str = ""
    error: Exception | None = None
    stopped: FdsError | None = None

    def after(self, before: StreamOutcome) -> StreamOutcome:
        """Return the outcome together with that of an earlier round of the same run, which lingers."""
        is_loaded = before.outcome == "loaded" and self.outcome in ("up_to_date", "waiting")
        return replace(self, outcome="loaded" if is_loaded else self.outcome, result=self.result or before.result)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values: ``outcome``, the fields of the result, ``reason``, ``error``, ``stopped``.

        ``error`` has the class, the message and the facts of the error; what does not apply is left out.
        """
        found: dict[str, Any] = {"outcome": self.outcome}
        if self.result is not None:
            found |= self.result.to_dict()
            del found["stream"]
        if self.reason:
            found["reason"] = self.reason
        if self.error is not None:
            found["error"] = {"error": type(self.error).__name__, "message": str(self.error), **facts_of(self.error)}
        if self.stopped is not None:
            found["stopped"] = self.stopped.facts()
        return found

    def describe(self) -> str:
        """Return the stream's name, with the reason code if there is an error."""
        known = self.error or self.stopped
        return self.stream if known is None else f"{self.stream} ({facts_of(known)['reason_code']})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetResult:
    """What a run of a fleet has done.

    Attributes:
        fleet: Name of the fleet.
        outcomes: The outcome of each stream, in the order of the fleet.
        seconds: Wall-clock seconds by phase: ``check``, ``plan``, ``spark``, ``commit``.
    """

    fleet: str
    outcomes: tuple[StreamOutcome, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Number of streams by outcome, without those that no stream has."""
        counts = Counter(one.outcome for one in self.outcomes)
        return {name: counts[name] for name in OUTCOMES if counts[name]}

    @property
    def loaded(self) -> tuple[StreamOutcome, ...]:
        """The streams that have committed batches, including those that failed or were left after it."""
        return tuple(one for one in self.outcomes if one.result is not None)

    def of(self, outcome: FleetOutcome) -> tuple[StreamOutcome, ...]:
        """Return the streams with an outcome."""
        return tuple(one for one in self.outcomes if one.outcome == outcome)

    def total(self, number: str) -> int | None:
        """Return the sum of a number of the results (``rows``, ``files``, ``bytes``), ``None`` if one is unknown."""
        values = [getattr(one.result, number) for one in self.loaded]
        return None if None in values else sum(values)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values. ``streams`` has an entry for each stream that is not unchanged, by name."""
        return {
            "fleet": self.fleet,
            "counts": self.counts,
            **{number: self.total(number) for number in ("rows", "files", "bytes")},
            "seconds": dict(self.seconds),
            "streams": {one.stream: one.to_dict() for one in self.outcomes if one.outcome != "unchanged"},
        }

    def describe(self) -> str:
        """Return the result as one line for people."""
        parts = []
        for name, count in self.counts.items():
            text = f"{count:,} {name.replace('_', ' ')}"
            if name in _NAMED:
                text += f" ({_names(self.of(name))})"  # type: ignore[arg-type]  # counts has outcomes as keys
            parts.append(text)
        rows, files, size = (
            "unknown" if count is None else f"{count:,}" for count in map(self.total, ("rows", "files", "bytes"))
        )
        line = f"Fleet {self.fleet}: {len(self.outcomes):,} streams: {', '.join(parts)}"
        if self.loaded:
            line += f"; {rows} rows from {files} files of {size} bytes"
        took = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in self.seconds.items())
        return f"{line}; seconds: {took}." if took else f"{line}."

    def error(self) -> FdsError | None:
        """Return the error of the fleet, or ``None`` if no stream failed.

        It can be retried if a retry may help one of the streams that failed.
        """
        failed = self.of("failed")
        if not failed:
            return None
        kind = FleetFailedError if any(is_retryable(one.error) for one in failed) else FleetRejectedError
        lines = [f"  - {one.stream}: {one.error}" for one in failed[:_MOST_NAMES]]
        if len(failed) > _MOST_NAMES:
            lines.append(f"  - and {len(failed) - _MOST_NAMES} more: {_names(failed[_MOST_NAMES:])}")
        count = f"{len(failed)} of {len(self.outcomes)} streams of fleet {self.fleet} failed"
        return kind(
            f"{count}; the others are not affected, and what they have loaded is committed:\n" + "\n".join(lines),
            streams=tuple(one.stream for one in failed),
        )


def is_retryable(error: Exception | None) -> bool:
    """Whether a retry may help; it may after an error that FDS does not know."""
    return error is not None and (not isinstance(error, FdsError) or error.retryable)


def facts_of(error: Exception) -> dict[str, Any]:
    """Return the facts of an error, of any class."""
    if isinstance(error, FdsError):
        return error.facts()
    return {"reason_code": str(Reason.INTERNAL_ERROR), "table": None, "version": None, "operation": None}


def _names(outcomes: tuple[StreamOutcome, ...]) -> str:
    names = [one.describe() for one in outcomes[:_MOST_NAMES]]
    if len(outcomes) > _MOST_NAMES:
        names.append(f"and {len(outcomes) - _MOST_NAMES} more")
    return ", ".join(names)
