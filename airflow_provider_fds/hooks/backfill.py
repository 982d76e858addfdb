"""The refusal of backfills for streams that read by offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.stream.data_interval import TIMETABLE

if TYPE_CHECKING:
    from airflow_provider_fds.stream import DeltaStream


def refuse_backfill(context: Any, stream: DeltaStream) -> None:
    """Refuse to run in a backfill, which would take rows away from the stream's scheduled runs.

    A stream with an offset reads what is new since the last run, whatever the run's date is. The check uses both the
    run's type and its id. Note that ``airflow backfill create --reprocess-behavior`` turns existing scheduled runs into
    backfill runs: they are refused too, and the batches that they have committed stay committed.

    Raises:
        ConfigurationError: The DAG run is a backfill run.
    """
    dag_run = context["dag_run"]
    run_type = getattr(dag_run.run_type, "value", dag_run.run_type)
    if run_type == "backfill" or str(dag_run.run_id).startswith("backfill__"):
        raise ConfigurationError(
            f"Run {dag_run.run_id!r} is a backfill, but stream {stream.name!r} of table {stream.table!r} "
            "continues from its last committed offset: a backfill would load the newest rows, not the rows of the "
            "run's date, and move the offset of the scheduled runs. For a DAG whose runs can be backfilled, cleared "
            "and run in any order, give it a stream of another name with read='data_interval', schedule="
            f"{TIMETABLE}, and a DeltaReplaceSink. To load a range once, make a second stream with another name, with "
            "starting_timestamp=… and ending_timestamp=…, and another sink; to move this stream, rewind it "
            f"(`fds rewind {stream.name} --to-version N --why …`).",
            table=stream.table,
        )


def refuse_intervals(stream: DeltaStream, what: str) -> None:
    """Refuse a stream that reads data intervals in an operator that hands out batches by offset.

    Raises:
        ConfigurationError: The stream has ``read="data_interval"``.
    """
    if stream.reads_by_interval:
        raise ConfigurationError(
            f"{what} hands out batches of a stream with an offset, and stream {stream.name!r} has "
            "read='data_interval'. Use DeltaIngestOperator for it, or read='offset'.",
            table=stream.table,
        )
