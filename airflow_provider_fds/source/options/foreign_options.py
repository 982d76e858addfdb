"""Options of other systems that people bring along, each answered with what FDS has instead."""

from __future__ import annotations

from typing import Final, NamedTuple


class ForeignOption(NamedTuple):
    """An option of another system.

    Attributes:
        system: The system, as a person calls it.
        name: The option, as that system spells it.
        answer: What to use instead: a sentence without its full stop.
    """

    system: str
    name: str
    answer: str


_FLINK: Final = "Flink's Delta connector"
_ICEBERG: Final = "Iceberg's Spark source"
_HUDI: Final = "Hudi"
_SPARK: Final = "Structured Streaming"
_AUTO_LOADER: Final = "Databricks Auto Loader"

_HOW_OFTEN: Final = (
    "poll_interval of the sensor or the operator says how often a waiting task polls the table, in seconds"
)

FOREIGN: Final = (
    ForeignOption(_FLINK, "updateCheckIntervalMillis", _HOW_OFTEN),
    ForeignOption(_FLINK, "updateCheckDelayMillis", f"a task polls the table as soon as it starts; {_HOW_OFTEN}"),
    ForeignOption(
        _FLINK,
        "parquetBatchSize",
        "Spark reads the files; max_files_per_batch and max_bytes_per_batch limit a batch",
    ),
    ForeignOption(
        _ICEBERG, "streaming-skip-delete-snapshots", "ignore_deletes=True skips commits that only delete rows"
    ),
    ForeignOption(
        _ICEBERG,
        "streaming-skip-overwrite-snapshots",
        "skip_change_commits=True skips every commit that removes data, with everything that it adds",
    ),
    ForeignOption(
        _ICEBERG,
        "stream-from-timestamp",
        "starting_timestamp is the time from which commits are read, as text such as '2026-01-01 00:00:00', not in "
        "milliseconds",
    ),
    ForeignOption(
        _ICEBERG, "streaming-max-files-per-micro-batch", "max_files_per_batch is the maximum number of files in a batch"
    ),
    ForeignOption(
        _ICEBERG, "streaming-max-rows-per-micro-batch", "max_rows_per_batch is the number of rows at which a batch ends"
    ),
    ForeignOption(_ICEBERG, "start-snapshot-id", "starting_version is the first version that is read (inclusive)"),
    ForeignOption(_ICEBERG, "end-snapshot-id", "ending_version is the last version that is read (inclusive)"),
    ForeignOption(
        _HUDI,
        "hoodie.datasource.read.begin.instanttime",
        "starting_version or starting_timestamp is where reading starts (inclusive)",
    ),
    ForeignOption(
        _HUDI,
        "hoodie.datasource.read.end.instanttime",
        "ending_version or ending_timestamp is where reading ends (inclusive)",
    ),
    ForeignOption(
        _HUDI,
        "hoodie.datasource.query.type",
        "a stream is always incremental; read_change_feed=True reads changes, and version_as_of reads one snapshot",
    ),
    ForeignOption(_HUDI, "as.of.instant", "timestamp_as_of reads the table as it was at that time"),
    ForeignOption(_HUDI, "read.streaming.check-interval", _HOW_OFTEN),
    ForeignOption(_HUDI, "read.streaming.enabled", "wait=True of the operator lets a run wait for new data"),
    ForeignOption(
        _HUDI, "read.start-commit", "starting_version or starting_timestamp is where reading starts (inclusive)"
    ),
    ForeignOption(
        _SPARK,
        "processingTime",
        f"the DAG's schedule says when a run loads what is new; {_HOW_OFTEN}",
    ),
    ForeignOption(
        _SPARK,
        "availableNow",
        "omit it: a run loads everything up to the version that was the newest when it first planned",
    ),
    ForeignOption(
        _SPARK,
        "once",
        "omit it: a run loads everything up to the version that was the newest when it first planned, in batches of at "
        "most max_files_per_batch files",
    ),
    ForeignOption(
        _SPARK,
        "continuous",
        "a DAG with schedule='@continuous' and wait=True of the operator loads data as soon as it is there",
    ),
    ForeignOption(
        _SPARK,
        "checkpointLocation",
        "FDS keeps the position in staging and the checkpoint; `fds admin import-checkpoint` continues that of a query",
    ),
    ForeignOption(
        _SPARK,
        "minOffsetsPerTrigger",
        "min_batch_bytes is the size below which new data waits for more",
    ),
    ForeignOption(
        _SPARK,
        "maxTriggerDelay",
        "max_batch_wait is how long data waits for min_batch_bytes",
    ),
    ForeignOption(_SPARK, "queryName", "the stream's name identifies its position"),
    ForeignOption(
        _AUTO_LOADER,
        "cloudFiles.maxFilesPerTrigger",
        "max_files_per_batch is the maximum number of files in a batch",
    ),
    ForeignOption(
        _AUTO_LOADER,
        "cloudFiles.maxBytesPerTrigger",
        "max_bytes_per_batch is the size at which a batch ends",
    ),
)

#: Any other option of Auto Loader.
_AUTO_LOADER_PREFIX: Final = "cloudfiles"
_NOT_FOR_DELTA: Final = "it reads files that are not a Delta table, and FDS reads Delta tables only; omit it"


def _plain(name: str) -> str:
    """Return a name without case and separators, as it may be spelled in Python: ``stream_from_timestamp``."""
    return name.lower().translate({ord(mark): None for mark in "._-"})


_BY_NAME: Final = {_plain(option.name): option for option in FOREIGN}


def foreign_option(name: str) -> ForeignOption | None:
    """Return the option of another system that ``name`` spells, ``None`` if it is none that FDS knows.

    >>> foreign_option("streaming-skip-delete-snapshots").answer
    'ignore_deletes=True skips commits that only delete rows'
    """
    found = _BY_NAME.get(_plain(name))
    if found is None and _plain(name).startswith(_AUTO_LOADER_PREFIX):
        return ForeignOption(_AUTO_LOADER, name, _NOT_FOR_DELTA)
    return found


#: Options that Delta knows and FDS refuses, with the reason and the alternative.
REFUSED: Final[dict[str, str]] = {
    "fail_on_data_loss": "FDS never skips lost versions silently; on_lost_position says what it does instead",
    "schema_tracking_location": "batches end where the schema changes; on_schema_change says which changes to follow",
    "schema_location": "batches end where the schema changes; on_schema_change says which changes to follow",
    "streaming_source_tracking_id": "the stream's name identifies its position",
    "with_event_time_order": "open-source Delta does not support it; the initial snapshot is ordered by "
    "modification time",
    "path": "the table is a separate argument",
    "allow_schema_changes": "it is on_schema_change",
    "partition_filter": "it is where",
    "acknowledged_schema": "it is accepted_schema_version",
    "on_future_start": "a stream waits until a commit reaches its start, and its state says so; omit it",
    "idle_after": "nobody waits for a stream that has committed nothing for 15 minutes and has nothing new; omit it",
    "stats": "it is stage_statistics",
    "merge_schema": "it belongs to the sink: DeltaAppendSink(merge_schema=True)",
    "txn_app_id": "FDS gives each batch its own transaction",
    "txn_version": "FDS gives each batch its own transaction",
}
