"""The targets of mutations, and their readers. A target returns the outcome of the reading, or raises."""

from __future__ import annotations

import contextlib
import io
import os
import zlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap64

from airflow_provider_fds.batch.manifest.manifest import build_manifest
from airflow_provider_fds.batch.report import AttemptReport, FenceReport, LandedBatch
from airflow_provider_fds.cli.main import main as fds
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.vectors import inline_vector, serialize_bitmap
from airflow_provider_fds.ledger.position import Checkpoint
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.plan import BatchPlanner
from airflow_provider_fds.stream.attempt import reports as attempts
from tests.conftest import LogBuilder
from tests.fuzz import mutations
from tests.unit.delta.conftest import CheckpointWriter

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

FEED = {"delta.enableChangeDataFeed": "true"}
IN_COMMIT = {"delta.enableInCommitTimestamps": "true"}
FEATURES = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors", "columnMapping", "v2Checkpoint"],
    "writerFeatures": ["deletionVectors", "columnMapping", "v2Checkpoint", "changeDataFeed"],
}
VECTOR_FILE = "deletion_vector_00000000-0000-0000-0000-000000000001.bin"


@dataclass(frozen=True)
class Target:
    """One kind of input.

    Attributes:
        name: Its row in the table.
        share: Weight among all mutations.
        files: The files of which one is damaged; none if an argument is damaged.
        mutate: Damages the content of a file.
        read: Reads the damaged input, given the damaged file; raises ``AssertionError`` if the outcome is wrong.
    """

    name: str
    share: int
    files: list[Path]
    mutate: Callable[[bytes, random.Random], bytes]
    read: Callable[[Path | None, random.Random], None]


class Plans:
    """Plans one table in all ways."""

    def __init__(self, builder: LogBuilder) -> None:
        self.builder = builder
        self.storage = LocalStorage(str(builder.root))
        self.log = DeltaLog(self.storage)
        self.newest = builder.version
        self.error: Exception | None = None
        self.versions = self._versions({})

    def read(self, path: Path | None, rng: random.Random) -> None:
        """Plan the table; before a damaged commit, everything must have been delivered."""
        options = rng.choice([{}, {"read_change_feed": True}, {"ignore_changes": True, "max_files_per_batch": 2}])
        self.log.latest()
        found = self._versions(options)
        if path is not None and path.suffix == ".json" and not options and path.stem.isdecimal():
            bad = int(path.stem)
            before = {version for version in self.versions if version < bad}
            assert before <= found, f"versions {sorted(before - found)} were not delivered"
        if self.error is not None:
            raise self.error

    def read_changes(self, path: Path | None, rng: random.Random) -> None:
        """Plan the changes of the table, for which vectors are read."""
        self._versions({"read_change_feed": True})
        if self.error is not None:
            raise self.error

    def _versions(self, options: dict[str, Any]) -> set[int]:
        start = Offset(self.builder.table_id, 0)
        planner = BatchPlanner(self.log, start, None, SourceOptions.parse(options), self.newest)
        versions = set()
        for batch in planner:
            assert 0 <= batch.num_bytes < 2**63
            assert batch.num_rows is None or 0 <= batch.num_rows < 2**63
            build_manifest(batch, table_uri=self.log.table_uri)
            versions |= {file.version for file in batch.files}
        self.error = planner.outcome.error if planner.outcome is not None else None
        return versions


def table(root: Path) -> LogBuilder:
    """A table with appends, a delete by a vector, change files, in-commit times and a change of the schema."""
    builder = LogBuilder(root)
    root.mkdir(parents=True)
    builder.create([builder.field("id")], configuration=FEED, protocol=FEATURES)
    builder.append(3)
    data = serialize_bitmap(BitMap64([1, 5, 7]))
    stored = len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    (root / VECTOR_FILE).write_bytes(b"\x01" + stored)
    by_file = {
        "storageType": "p",
        "pathOrInlineDv": f"{builder.uri}/{VECTOR_FILE}",
        "offset": 1,
        "sizeInBytes": len(data),
        "cardinality": 3,
    }
    made = inline_vector(BitMap64([1, 5, 7, 8]))
    inline = {name: getattr(made, name) for name in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality")}
    path, stats = "part-00001-00001.parquet", {"stats": '{"numRecords":10}'}
    builder.commit(
        builder.remove(path, **stats), builder.add(path, deletionVector=by_file, **stats), operation="DELETE"
    )
    builder.commit(
        builder.remove(path, deletionVector=by_file, **stats),
        builder.add(path, deletionVector=inline, **stats),
        operation="DELETE",
    )
    builder.append(2)
    builder.commit(builder.metadata([builder.field("id"), builder.field("v", "string")], (), {**FEED, **IN_COMMIT}))
    cdc = {"cdc": {"path": "_change_data/x.parquet", "partitionValues": {}, "size": 5, "dataChange": False}}
    builder.commit(builder.add("updated"), cdc, operation="UPDATE", inCommitTimestamp=builder.time_of(6))
    return builder


class Snapshots:
    """Freezes the snapshot of a table and plans it."""

    def __init__(self, root: Path, form: str) -> None:
        self.builder = LogBuilder(root)
        self.builder.create(configuration=FEED)
        made = inline_vector(BitMap64([1]))
        vector = {name: getattr(made, name) for name in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality")}
        self.builder.append(6)
        self.builder.append(1, deletionVector=vector, stats='{"numRecords":10}')
        writer = CheckpointWriter(self.builder)
        writer.more = [{"txn": {"appId": "a", "version": 3}}]
        self.files = [writer.classic() if form == "classic" else writer.v2("json" if form == "json" else "parquet")]
        if form == "sidecars":
            self.files = sorted((self.builder.log / "_sidecars").iterdir())
        writer.hint(self.builder.version)
        self.builder.clean_up_before(self.builder.version)
        self.builder.append()
        self.hint = self.builder.log / "_last_checkpoint"
        self.log = DeltaLog(LocalStorage(str(root)))
        self.staging = LocalStorage(str(root.parent / f"{root.name}-staging"))
        self.expected = self._files()
        assert len(self.expected) == 8

    def read(self, path: Path | None, rng: random.Random) -> None:
        """Freeze and plan; a hint must not change the outcome."""
        self.log.latest()
        found = self._files()
        assert path != self.hint or found == self.expected, "a hint changed the snapshot"
        assert len(found) == len(set(found)), "a file was delivered twice"

    def _files(self) -> list[Any]:
        version = self.builder.version
        frozen = freeze_snapshot(self.log, version, self.staging, "snapshots")
        start = Offset(self.builder.table_id, version, is_initial_snapshot=True)
        planner = BatchPlanner(
            self.log, start, None, SourceOptions(), version, snapshot=frozen, snapshot_storage=self.staging
        )
        found = []
        try:
            for batch in planner:
                build_manifest(batch, table_uri=self.log.table_uri)
                found += [file.add.file_key for file in batch.files]
        finally:
            # a frozen snapshot is not frozen again
            (self.staging.root / frozen.key).unlink()
        if planner.outcome is not None and planner.outcome.error is not None:
            raise planner.outcome.error
        return found


class Stream:
    """A stream with a planned ledger, its fold and its checkpoint."""

    def __init__(self, root: Path, builder: LogBuilder) -> None:
        self.root = root
        self.builder = builder
        code = self.fds("plan", self.builder.root, "--staging", root / "staging", "--stream", "x", *START)
        assert code == 0
        self.storage = LocalStorage(str(root / "staging"))
        ledger = Ledger(self.storage, "x")
        self.state = ledger.find()
        ledger.save_fold()
        self.checkpoint = root / "checkpoint.json"
        self.checkpoint.write_text(ledger.checkpoint().to_json())
        folder = root / "staging" / "x" / "ledger"
        self.entries = sorted(folder.glob("0*.json"))
        self.folds = sorted((folder / "_checkpoint").glob("*.json"))
        assert len(self.entries) > 2
        assert self.folds
        self.report, self.fence = root / "report.json", root / "fence.json"
        self.report.write_bytes(
            AttemptReport(
                uuid=self.state.uuid,
                epoch=1,
                batch_id=0,
                manifest_digest="d",
                attempt_id="t",
                outcome="written",
                sink_version=1,
                sink_table_id="s",
                rows_written=3,
                seconds={"write": 1.5},
                settings={"a": "b"},
            ).to_json()
        )
        landed = LandedBatch(1, 0, "{}", "d", 1)
        self.fence.write_bytes(FenceReport(self.state.uuid, 2, "t", "fenced", 3, "s", (landed,)).to_json())

    @staticmethod
    def fds(*arguments: object) -> int:
        """Run a command in this process, silently."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return fds([str(argument) for argument in arguments])

    def read_entries(self, path: Path | None, rng: random.Random) -> None:
        """Read the ledger from its entries, and return its state."""
        for fold in self.folds:
            fold.rename(fold.with_suffix(".away"))
        try:
            Ledger(self.storage, "x").find()
        finally:
            for fold in self.folds:
                fold.with_suffix(".away").rename(fold)

    def read_folds(self, path: Path | None, rng: random.Random) -> None:
        """Read the ledger; a fold is a hint."""
        found = Ledger(self.storage, "x").find()
        assert found == self.state, "a fold changed the state"

    def read_checkpoint(self, path: Path | None, rng: random.Random) -> None:
        """Read the ledger from a checkpoint."""
        checkpoint = Checkpoint.from_json(self.checkpoint.read_bytes(), home="a file")
        if checkpoint.offset is not None:
            Offset.from_json(checkpoint.offset)
        Ledger(self.storage, "x").load(checkpoint)

    def read_reports(self, path: Path | None, rng: random.Random) -> None:
        """Read the report of an attempt and that of a fence."""
        connected: Any = SimpleNamespace(stream=SimpleNamespace(name="x", table="t"))
        for kind, file in ((AttemptReport, self.report), (FenceReport, self.fence)):
            attempts.decoded(kind, file.read_bytes(), connected, f"x/attempts/{file.name}")

    def run_command(self, path: Path | None, rng: random.Random) -> None:
        """Run a command with damaged arguments. Paths are not damaged: a command writes to the given paths."""
        staging = ["--staging", str(self.root / "staging")]
        table = str(self.builder.root)
        options = ["starting_version=0", "max_files_per_batch=2", "exclude_regex=a.*", "skip_versions=1-3"]
        values = ["ending_version=3", "ignore_changes=true", "where=id > 3", "starting_timestamp=2024-01-01"]
        damaged = [mutations.of_argument(rng.choice(options + values), rng) for _ in range(rng.randrange(1, 3))]
        name = mutations.of_argument("x", rng)
        number = mutations.of_argument("3", rng)
        command = rng.choice(
            [
                ["plan", table, "--dry-run", *(part for text in damaged for part in ("--option", text))],
                ["plan", table, "--dry-run", "--option", rng.choice(options), "--max-batches", number],
                ["plan", table, "--dry-run", "--from", mutations.of_argument(self.state.position or "", rng)],
                ["status", name, *staging],
                ["history", name, *staging, "--all", "--output", "json"],
                ["status", name, "--full", *staging],
                ["latest", table, "--storage-option", rng.choice(damaged)],
                [mutations.of_argument("status", rng), "x", *staging],
            ]
        )
        assert self.fds(*command) in range(7), command


START = ("--option", "starting_version=0", "--option", "ignore_changes=true")


def all_targets(root: Path) -> list[Target]:
    """Create the tables and the stream below ``root``, and return all targets."""
    os.chdir(root)
    plans = Plans(table(root / "table"))
    commits = sorted(plans.builder.log.glob("0*.json"))
    classic, json_, sidecars = (Snapshots(root / form, form) for form in ("classic", "json", "sidecars"))
    stream = Stream(root, table(root / "streamed"))
    text, parquet = mutations.of_text, mutations.of_parquet
    vectors = [plans.storage.root / VECTOR_FILE]

    return [
        Target("commits", 40, commits, text, plans.read),
        Target("`_last_checkpoint`", 4, [classic.hint], text, classic.read),
        Target("checkpoints, classic", 12, classic.files, parquet, classic.read),
        Target("checkpoints, v2 as JSON", 8, json_.files, text, json_.read),
        Target("sidecars", 8, sidecars.files, parquet, sidecars.read),
        Target("deletion vectors", 8, vectors, mutations.of_bytes, plans.read_changes),
        Target("ledger entries", 8, stream.entries, text, stream.read_entries),
        Target("folds", 4, stream.folds, text, stream.read_folds),
        Target("reports", 8, [stream.report, stream.fence], text, stream.read_reports),
        Target("checkpoints of a stream", 6, [stream.checkpoint], text, stream.read_checkpoint),
        Target("arguments of `fds`", 3, [], mutations.of_bytes, stream.run_command),
    ]
