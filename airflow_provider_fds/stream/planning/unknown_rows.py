"""Batches whose size is estimated, or protects nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.version_ranges import describe_range

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.source.planned import SourceBatch
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream

logger = logging.getLogger(__name__)


class UnknownRows:
    """The batches of one plan that have files of unknown rows, which ``max_rows_per_batch`` counts by their size.

    Call :meth:`see` for each batch, then :meth:`warn` once.
    """

    def __init__(self, stream: DeltaStream) -> None:
        self._stream = stream
        self._num_batches = 0
        self._versions: list[tuple[int, int]] = []

    def see(self, batch: PlannedBatch | SourceBatch) -> None:
        """Add the next batch."""
        # a filtered batch never says how many rows it has
        if self._stream.options.max_rows_per_batch is None or batch.where:
            return
        self._num_batches += 1
        if batch.num_rows is None:
            self._versions.append((batch.first_version, batch.last_version))

    def warn(self) -> None:
        """Log one warning, if there is such a batch."""
        if not self._versions:
            return
        first, last = self._versions[0]
        logger.warning(
            "stream %s: %d of %d planned batches have files whose statistics do not say how many rows they have "
            "(numRecords), the first in %s. max_rows_per_batch counts such files by their size, so these batches may "
            "have more or fewer rows. Use max_bytes_per_batch for such a table.",
            self._stream.name,
            len(self._versions),
            self._num_batches,
            describe_range(first, last),
        )
