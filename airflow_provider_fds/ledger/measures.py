"""What was measured of batches: rows in, files and bytes out, seconds. No decision depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.sizes import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping


class Measures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The measures of one or more batches. ``None`` means unknown for at least one of them.

    Attributes:
        rows_read: Rows of the batch, before a filter, a transform or a merge of the sink.
        files_written: Data files of the sink's commits.
        bytes_written: Bytes of these files.
        seconds: Wall-clock seconds on the Spark driver by phase (``check``, ``load``, ``write``, ``verify``); empty for
            a batch that a user job has loaded.
        warnings: What a person should know about the sink, such as rows that another writer removed.
        rows_rejected: Rows that expectations kept out of the sink.
        failed_rows: By expectation, the number of rows that failed it.
    """

    rows_read: int | None = None
    files_written: int | None = None
    bytes_written: int | None = None
    seconds: dict[str, float] = {}
    warnings: list[str] = []
    rows_rejected: int = 0
    failed_rows: dict[str, int] = {}

    def plus(self, other: Measures | None) -> Measures:
        """Return the sum; ``None`` is a batch that was not measured."""
        more = UNKNOWN if other is None else other
        seconds = dict(self.seconds)
        for phase, took in more.seconds.items():
            seconds[phase] = round(seconds.get(phase, 0.0) + took, 3)
        failed = dict(self.failed_rows)
        for expectation, rows in more.failed_rows.items():
            failed[expectation] = failed.get(expectation, 0) + rows
        return Measures(
            rows_read=_sum(self.rows_read, more.rows_read),
            files_written=_sum(self.files_written, more.files_written),
            bytes_written=_sum(self.bytes_written, more.bytes_written),
            seconds=seconds,
            warnings=list(dict.fromkeys((*self.warnings, *more.warnings))),
            rows_rejected=self.rows_rejected + more.rows_rejected,
            failed_rows=failed,
        )


def describe_failed(failed_rows: Mapping[str, int], rows_rejected: int) -> str:
    """Return how many rows failed expectations as the end of a list, empty if none did."""
    failed = [f"{count:,} fail {text}" for text, count in failed_rows.items() if count]
    if not failed and not rows_rejected:
        return ""
    return f", {format_count(rows_rejected, 'row')} rejected" + (f" ({', '.join(failed)})" if failed else "")


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


#: The measures of a batch that was not measured.
UNKNOWN: Final = Measures()

#: The measures of no batch at all.
NONE_YET: Final = Measures(rows_read=0, files_written=0, bytes_written=0)
