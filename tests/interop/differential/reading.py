"""One table, one set of options, two readers: FDS with its manifests, and Structured Streaming."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.batch.manifest.manifest import build_manifest
from airflow_provider_fds.batch.manifest.publish import manifest_folder, write_manifest
from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.end import known_end
from airflow_provider_fds.source.planning.plan import BatchPlanner
from airflow_provider_fds.source.planning.start import SnapshotStart, resolve_start, starting_state
from airflow_provider_fds.spark.application.batch_rows import listed_rows

if TYPE_CHECKING:
    import random

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_fds.batch.manifest.manifest import Manifest
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.source.planned import SourceBatch
    from tests.interop.differential.tables import RandomTable

#: Expected errors of a stream for a commit that it does not pass, and for a schema change that requires a restart.
_STOPS = ("DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES")
_RESTARTS = ("DELTA_SCHEMA_CHANGED", "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE")

#: A stream has no such option; it filters its rows with the predicate instead.
_FILTERS = ("pt = 'a b'", "pt <> '50%'", "pt IS NULL", "pt IN ('plain', 'merged', 'x:y')", "NOT pt < 'a=b'")
_WHERES = ("id > 12", "NOT (id BETWEEN 4 AND 9 OR v IS NULL)", "pt <> '50%' AND id <= 20", "v > 'v2' OR pt IS NULL")

_VERSION = re.compile(r"at version (\d+)|version (\d+)")
_MAX_RESTARTS = 12


@dataclass
class Reading:
    """What a reader returned for a table.

    Attributes:
        rows: The rows as a multiset; null columns are omitted, so that added columns do not matter.
        stopped_at: The version that the reader would not pass, or ``None`` if it reached the end.
        offset: The position after the last batch, or ``None`` if there was no batch.
        error: What stopped FDS, or nothing.
        plan: What FDS planned, each batch with the digest of its manifest, and the frozen snapshot.
    """

    rows: Counter[str] = field(default_factory=Counter)
    stopped_at: int | None = None
    offset: Offset | None = None
    error: str = ""
    plan: list[tuple[Any, ...]] = field(default_factory=list)


def random_options(random_: random.Random, table: RandomTable) -> dict[str, Any]:
    """Return options that both readers know, under FDS's names."""
    options: dict[str, Any] = {}
    newest = table.log.latest()
    if random_.random() < 0.7:
        options["starting_version"] = random_.randint(table.log.earliest(), newest)
    if random_.random() < 0.5:
        options["max_files_per_batch"] = random_.randint(1, 5)
    if random_.random() < 0.2:
        options["max_bytes_per_batch"] = random_.randint(1, 5000)
    if random_.random() < 0.15:
        options["exclude_regex"] = random_.choice(["part-00000", "pt=", "[02468]"])
    conditions = []
    if table.is_partitioned and random_.random() < 0.2:
        conditions.append(random_.choice(_FILTERS))
    # draws of its own, so that the other options of a seed stay what they are
    of_where = Random(f"where {table.seed} {newest}")
    if of_where.random() < 0.3:
        conditions.append(of_where.choice(_WHERES))
    if conditions:
        options["where"] = " AND ".join(f"({one})" for one in conditions)
    if table.has_feed and random_.random() < 0.5:
        options["read_change_feed"] = True
        return options
    passing = random_.choice([(), ("ignore_deletes",), ("ignore_changes",), ("skip_change_commits",)])
    return options | dict.fromkeys(passing, True)


def random_times(
    random_: random.Random, options: dict[str, Any], times: list[tuple[int, int]], *, has_end: bool
) -> dict[str, Any]:
    """Return the options with a start, and perhaps an end, as times: on a commit, between two, or before the first.

    Args:
        random_: Draws.
        options: Options without an end.
        times: Version and time (milliseconds) of each commit, oldest first.
        has_end: Whether an end may be drawn.
    """
    options = {name: value for name, value in options.items() if name != "starting_version"}
    first = random_.randrange(len(times))
    earliest = times[first - 1][1] + 1 if first else times[0][1] - 3_600_000
    options["starting_timestamp"] = _text(random_.choice([times[first][1], earliest]))
    if has_end and random_.random() < 0.7:
        last = random_.randrange(first, len(times))
        latest = times[last + 1][1] - 1 if last + 1 < len(times) else times[last][1] + 3_600_000
        options["ending_timestamp"] = _text(random_.choice([times[last][1], latest]))
    return options


def _text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def random_limits(random_: random.Random, options: dict[str, Any]) -> list[dict[str, int]]:
    """Return limits for FDS to plan with in sequence; limits do not change which rows are read."""
    limits = [("max_files_per_batch", 4)]
    if not options.get("read_change_feed"):
        limits.append(("max_rows_per_batch", 60))
    return [{name: random_.randint(1, most)} for name, most in random_.choices(limits, k=random_.randint(0, 2))]


class TwoReaders:
    """Reads tables both ways.

    Args:
        spark: The session.
        folder: For manifests and checkpoints.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._staging = LocalStorage(str(folder / "staging"))
        self._count = 0

    def by_fds(self, log: DeltaLog, options: dict[str, Any], limits: list[dict[str, int]], *, reads: bool) -> Reading:
        """Plan in several steps, each with a different limit; read the manifests, or only plan."""
        parsed = SourceOptions.parse(options)
        start = resolve_start(log, parsed)
        assert start is not None
        newest = log.latest()
        end = known_end(log, parsed, None)
        newest = newest if end is None else end.version
        found, frozen = Reading(), None
        if isinstance(start, SnapshotStart):
            self._count += 1
            frozen = freeze_snapshot(log, start.version, self._staging, f"snapshots-{self._count}")
            found.plan.append((frozen.version, frozen.digest, frozen.num_files, frozen.num_bytes))
            start = start.offset
        position = start
        for number, limit in enumerate([*limits, None]):
            now = parsed if limit is None else SourceOptions.parse({**options, **limit})
            is_first = position == start
            planner = BatchPlanner(
                log,
                position,
                starting_state(log, position) if is_first or position.is_initial_snapshot else None,
                now,
                newest,
                snapshot=frozen,
                snapshot_storage=self._staging,
            )
            for planned, batch in enumerate(planner):
                assert batch.start == position
                position = batch.end
                manifest = build_manifest(batch, table_uri=log.table_uri) if batch.files else None
                found.plan.append(_facts(batch, manifest))
                if manifest is not None and reads:
                    found.rows += self._rows(self._load(batch, manifest), is_feed=parsed.read_change_feed)
                # the first steps end early
                if limit is not None and planned + 1 == number + 1:
                    break
            if planner.outcome is not None:
                if (error := planner.outcome.error) is not None:
                    found.stopped_at, found.error = (
                        error.version,
                        f"{type(error).__name__} {error.reason_code}: {error}",
                    )
                break
        found.offset = position if position != start else None
        return found

    def commit_times(self, table: RandomTable) -> list[tuple[int, int]]:
        """Return version and time (milliseconds) of each commit, oldest first, as Delta itself tells them."""
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{table.path}`").selectExpr(
            "version", "unix_millis(timestamp)"
        )
        return sorted((row[0], row[1]) for row in history.collect())

    def until_end(self, table: RandomTable, options: dict[str, Any]) -> RandomTable:
        """Return a copy of the table as it was at ``ending_timestamp``, an option that a stream does not know."""
        if "ending_timestamp" not in options:
            return table
        end_ms = datetime.fromisoformat(options["ending_timestamp"]).timestamp() * 1000
        last = max(version for version, at_ms in self.commit_times(table) if at_ms <= end_ms)
        self._count += 1
        copy = replace(table, path=str(self._folder / f"table until {last} {self._count}"))
        shutil.copytree(table.path, copy.path)
        for path in (Path(copy.path) / "_delta_log").glob("*"):
            number = path.name.lstrip(".").partition(".")[0]
            if (number.isdecimal() and int(number) > last) or path.name.lstrip(".").startswith("_last_checkpoint"):
                path.unlink()
        return copy

    def by_streaming(self, table: RandomTable, options: dict[str, Any]) -> Reading:
        """Run a query until it is done; run it again if it asks for a restart."""
        self._count += 1
        checkpoint = self._folder / f"checkpoint {self._count}"
        found = Reading()
        for _ in range(_MAX_RESTARTS):
            error = self._run_query(table, options, checkpoint, found.rows)
            if error is None or not any(name in error for name in _RESTARTS):
                break
        if error is not None:
            assert any(name in error for name in _STOPS), error
            match = _VERSION.search(error)
            assert match is not None, error
            found.stopped_at = int(match.group(1) or match.group(2))
        offsets = sorted((int(p.name), p) for p in (checkpoint / "offsets").glob("[0-9]*"))
        if offsets and (checkpoint / "commits" / str(offsets[-1][0])).exists():
            found.offset = Offset.from_json(offsets[-1][1].read_text().splitlines()[-1])
        return found

    def _run_query(
        self, table: RandomTable, options: dict[str, Any], checkpoint: Path, seen: Counter[str]
    ) -> str | None:
        from pyspark.errors import StreamingQueryException

        is_feed = options.get("read_change_feed", False)
        stream = self._spark.readStream.format("delta")
        for name, value in options.items():
            if name in _SPARK_NAMES:
                stream = stream.option(_SPARK_NAMES[name], str(value).lower() if isinstance(value, bool) else value)
        query = (
            stream.load(table.path)
            .where(options.get("where", "true"))
            .writeStream.foreachBatch(lambda frame, _: seen.update(self._rows(frame, is_feed=is_feed)))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            return str(error)
        return None

    def _load(self, batch: SourceBatch, manifest: Manifest) -> DataFrame:
        self._count += 1
        uri = write_manifest(manifest, self._staging, f"s/{manifest_folder(1, self._count, manifest.digest)}")
        frame = self._spark.read.format("delta").load(uri)
        if batch.where:
            return frame.where(batch.where)
        # alternates between a user's way to read it and the driver's way for a sink that takes everything
        return frame if self._count % 2 else listed_rows(self._spark, frame, uri, batch.num_files)

    @staticmethod
    def _rows(frame: DataFrame, *, is_feed: bool) -> Counter[str]:
        # a manifest adds version and time to every row, a stream only to those of the change data feed
        shown = frame if is_feed else frame.drop("_commit_version", "_commit_timestamp")
        return Counter(
            json.dumps({k: v for k, v in row.asDict().items() if v is not None}, default=str, sort_keys=True)
            for row in shown.collect()
        )


def _facts(batch: SourceBatch, manifest: Manifest | None) -> tuple[Any, ...]:
    """Return all of a batch that must not depend on how its table was found."""
    versions = (batch.start, batch.end, batch.first_version, batch.last_version)
    judged = (batch.skipped, batch.schema_changes, batch.feed, batch.where)
    read = (batch.last_commit_sha256, batch.log_checksum)
    return (*versions, *judged, *read, None if manifest is None else manifest.digest)


_SPARK_NAMES = {
    "starting_version": "startingVersion",
    "starting_timestamp": "startingTimestamp",
    "max_files_per_batch": "maxFilesPerTrigger",
    "max_bytes_per_batch": "maxBytesPerTrigger",
    "exclude_regex": "excludeRegex",
    "read_change_feed": "readChangeFeed",
    "ignore_deletes": "ignoreDeletes",
    "ignore_changes": "ignoreChanges",
    "skip_change_commits": "skipChangeCommits",
}
