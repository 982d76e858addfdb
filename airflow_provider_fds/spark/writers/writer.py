"""Writers, which write a sink on the driver. A writer bears the name of its sink, and is found by it.

``DeltaMergeSink`` is written by ``DeltaMergeWriter`` in ``delta_merge_writer.py``. A sink has a module in
``sinks/`` and one here, with an underscore before each capital (``MySqlSink``: ``my_sql_writer.py``). Both are shipped
to the driver by name patterns; a file of streams knows the sinks in ``SINKS`` (``fleet/streams_file/fields.py``). Only
sinks of this package have writers; a job spec names a kind of sink and never a module. Standard library and pyspark,
Python 3.9 syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple, Type

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import sink_class
from airflow_provider_fds.spark.runtime.failures import RefusalError

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import FenceReport
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.batch.spec import BatchSpec, FenceSpec, JobSpec
    from airflow_provider_fds.sinks import Sink


@dataclass(frozen=True)
class Landed:
    """What the sink has of a batch.

    Attributes:
        commit: The sink's commit, or ``None`` if a user's function wrote.
        by_this_attempt: Whether this attempt made it.
        rows: Rows that the user's function says it wrote.
        looked_seconds: Time taken to find the commit after the write.
        warnings: What a person should know about the sink.
        tables: For a function: by named table, the version that holds the newest transaction of its write.
    """

    commit: Optional[SinkCommit]
    by_this_attempt: bool
    rows: Optional[int] = None
    looked_seconds: float = 0.0
    warnings: Tuple[str, ...] = ()
    tables: Dict[str, int] = field(default_factory=dict)


class Writer:
    """Writes the batches of one job into one sink.

    Use: :meth:`find` a batch; if it is not there, :meth:`prepare` its rows and :meth:`append` them.

    Args:
        spark: Session.
        sink: The declared sink.
        job: The job.
        settings: The forced settings, as they are in force.
    """

    def __init__(self, spark: Any, sink: Any, job: JobSpec, settings: Dict[str, str]) -> None:
        self._spark = spark
        self._sink = sink
        self._job = job
        self._settings = settings

    @property
    def table_id(self) -> Optional[str]:
        """Id of the sink's table, ``None`` until it exists, and if FDS knows no table."""
        return None

    @property
    def reads_rows_once(self) -> bool:
        """Whether :meth:`append` reads the rows in one Spark action, all of them."""
        return False

    @property
    def tests_rows(self) -> bool:
        """Whether :meth:`append` tests the rows in a Spark action of its own, and then writes the same."""
        return False

    def find(self, batch: BatchSpec) -> Optional[Landed]:
        """Return what the sink has of the batch if an earlier attempt wrote it, else ``None``.

        Raises:
            RefusalError: The sink differs from what was recorded, or it is not this batch's turn.
        """
        raise NotImplementedError

    def prepare(self, frame: Any, batch: BatchSpec) -> Any:  # noqa: ARG002 - for sinks that choose rows and columns
        """Return the rows of a batch as the sink gets them, with the columns that a batch has beside the source's.

        Raises:
            RefusalError: An argument of the sink does not fit the batch.
        """
        return frame

    def append(self, frame: Any, batch: BatchSpec) -> Landed:
        """Write the prepared rows of a batch, and return what the sink has of it.

        Raises:
            RefusalError: The batch does not fit, or is not in the sink afterwards.
        """
        raise NotImplementedError

    @classmethod
    def close_epochs(cls, spark: Any, job: JobSpec, fence: FenceSpec, sink: Any) -> FenceReport:  # noqa: ARG003
        """Close the epochs before that of ``fence`` in the sink.

        Raises:
            RefusalError: FDS knows no table of such a sink.
        """
        raise RefusalError(
            Reason.SINK_UNSUITABLE, f"{sink.kind} has no table in which FDS could close the epochs before {fence.epoch}"
        )


def writer_class(sink: Sink) -> Type[Writer]:
    """Return the writer of a sink, by its name.

    Raises:
        RefusalError: It is not a sink of this package, or has no writer.
    """
    if sink_class(sink.kind) is not type(sink):
        raise RefusalError(
            Reason.SINK_UNSUITABLE, f"{type(sink).__name__} is not a sink of FDS, so FDS has no writer for it"
        )
    name = type(sink).__name__.removesuffix("Sink") + "Writer"
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    try:
        found: Type[Writer] = getattr(import_module(f"airflow_provider_fds.spark.writers.{module}"), name)
    except (ImportError, AttributeError) as error:
        raise RefusalError(
            Reason.SINK_UNSUITABLE, f"{type(sink).__name__} has no writer {name} in {module}.py: {error}"
        ) from error
    return found
