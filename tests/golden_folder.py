"""The golden folders: staging folders, tables, checkpoints and triggers that an earlier FDS has written.

``tests/golden/folders/<version>`` has one folder in ``files``, the modification times of its files, on which the times
of Delta's commits depend, in ``times.json``, and the facts that a reader must find in ``expected.json``. The script
``scripts/golden_folders.py`` makes them. Its docstring says why a folder is always put back to :data:`PLACE`.
"""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import os
import re
import shutil
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_provider_fds.batch.fleet_spec import FleetSpec
from airflow_provider_fds.batch.report import AttemptReport, FenceReport, decode
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.cli.commands.plan import _left
from airflow_provider_fds.cli.estimate import Outcome
from airflow_provider_fds.cli.main import main as fds
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.snapshot import FrozenSnapshot
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.entries.entry import Entry
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.ledger.position import Checkpoint
from airflow_provider_fds.ledger.staging.archive import LedgerArchive
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import sink_from_dict
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession
from airflow_provider_fds.stream.monitoring.status import status_of
from airflow_provider_fds.stream.monitoring.status_row import StatusFile, parse_row
from airflow_provider_fds.stream.position.data_interval import DataInterval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch

FOLDERS = Path(__file__).parent / "golden" / "folders"
#: Where a golden folder was made, and where it is put back to.
PLACE = Path("/tmp/fds-golden")
#: A file in it that says that the place belongs to these tests.
MARK = ".this-is-a-golden-folder"
#: Rows of the commit that is appended before a stream continues.
NEW_ROWS = 7

_LOCK = PLACE.with_name("fds-golden.lock")
#: Checksums that Hadoop writes beside files, and Delta beside the commits of a sink: no reader needs them.
_NEEDLESS = re.compile(r"(.*/)?\.[^/]*\.crc|sinks/.*\.crc|.*/__pycache__/.*")
#: A commit of a source or a sink; its time is that of the version.
_COMMIT = re.compile(r"(lake|sinks)/.*/_delta_log/\d+\.json")
#: Time of all other files, 2025-06-01.
_OTHER_TIME_MS = 1_748_736_000_000


def folders() -> list[Path]:
    """Return the golden folders, the newest last."""
    found = (path.parent for path in FOLDERS.glob("*/expected.json"))
    return sorted(found, key=lambda path: [int(part) for part in re.split(r"[.-]", path.name)])


@contextmanager
def reserved() -> Iterator[GoldenPlace]:
    """Keep the place from other processes while the body runs, and remove what is there at the end."""
    if not _LOCK.exists():
        _LOCK.touch()
    # for reading only: it may belong to another user
    with _LOCK.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place = GoldenPlace()
        place.clear()
        try:
            yield place
        finally:
            place.clear()


def _beside(folder: Path) -> Path:
    return PLACE.with_name(f"{PLACE.name}.beside.{folder.name}")


class GoldenPlace:
    """The place of the golden folders, while it is reserved."""

    path = PLACE

    def __init__(self) -> None:
        #: The folder that is in the place; others wait beside it, as tests may take them in any order.
        self._folder: Path | None = None
        #: Size and time, in nanoseconds, of the files of each folder.
        self._kept: dict[Path, dict[str, tuple[int, int]]] = {}

    def clear(self) -> None:
        """Remove what is there, and what waits beside it."""
        for place in (PLACE, *PLACE.parent.glob(f"{PLACE.name}.beside.*")):
            if not place.exists():
                continue
            if place.is_symlink() or not (place / MARK).exists():
                raise RuntimeError(f"{place} is not a golden folder; these tests need this place: move it away")
            shutil.rmtree(place)
        self._folder = None

    def begin(self) -> None:
        """Create the place, empty."""
        self.clear()
        self._make()

    @staticmethod
    def _make() -> None:
        PLACE.mkdir(mode=0o700)
        (PLACE / MARK).touch()

    def _change_to(self, folder: Path) -> None:
        """Let the place be that of a folder: files of two folders may have one size and one time."""
        if self._folder == folder:
            return
        if self._folder is None:
            self.clear()
        else:
            PLACE.rename(_beside(self._folder))
        if _beside(folder).exists():
            _beside(folder).rename(PLACE)
        else:
            self._make()
        self._folder = folder

    def put_back(self, folder: Path) -> None:
        """Make the place what the folder is, with the times of its commits; touches only what differs."""
        self._change_to(folder)
        if folder not in self._kept:
            times: dict[str, int] = json.loads((folder / "times.json").read_bytes())
            self._kept[folder] = {
                path: (size, times.get(path, _OTHER_TIME_MS) * 1_000_000)
                for path, (size, _) in _stats(folder / "files").items()
            }
        kept, found = self._kept[folder], _stats(PLACE)
        for path in found.keys() - kept.keys() - {MARK}:
            (PLACE / path).unlink()
        for path, (size, time_ns) in kept.items():
            if found.get(path) != (size, time_ns):
                target = PLACE / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / "files" / path, target)
                os.utime(target, ns=(time_ns, time_ns))

    def keep(self, folder: Path) -> None:
        """Write what is there to the folder."""
        self._kept.pop(folder, None)
        times = {}
        for path in sorted(_files(PLACE)):
            name = path.as_posix()
            if _NEEDLESS.fullmatch(name) or name == MARK:
                continue
            target = folder / "files" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PLACE / path, target)
            if _COMMIT.fullmatch(name):
                times[name] = (PLACE / path).stat().st_mtime_ns // 1_000_000
        (folder / "times.json").write_text(json.dumps(times, indent=0) + "\n")


def _stats(root: Path) -> dict[str, tuple[int, int]]:
    """Return size and time, in nanoseconds, of each file below a folder, by its path there."""
    found = {}
    waiting = [os.fspath(root)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    stat = entry.stat()
                    found[entry.path[len(os.fspath(root)) + 1 :]] = (stat.st_size, stat.st_mtime_ns)
    return found


def _files_of(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def _files(root: Path) -> list[Path]:
    return [path.relative_to(root) for path in _files_of(root)]


@dataclass(frozen=True)
class GoldenStream:
    """One stream of a golden folder, as it was declared.

    Attributes:
        staging: Its staging folder, below the place.
        stream: The stream, as ``DeltaStream.to_dict()`` returns it.
        sink: Its sink, as ``to_dict()`` returns it; ``None`` for a user job.
        user_job: Whether a user job writes the batches.
        interval: The data interval with which it continues, for a stream that reads data intervals.
        rewind: Arguments of ``fds rewind`` that its sink requires.
    """

    staging: str
    stream: dict[str, Any]
    sink: dict[str, Any] | None
    user_job: bool = False
    interval: list[str] | None = None
    rewind: list[str] = dataclasses.field(default_factory=list)

    @property
    def name(self) -> str:
        return DeltaStream.from_dict(self.stream).name

    @property
    def key(self) -> str:
        """Its folder, below the place."""
        return f"{self.staging}/{self.name}"

    @property
    def storage(self) -> LocalStorage:
        return LocalStorage(str(PLACE / self.staging))

    def ledger(self) -> Ledger:
        return Ledger(self.storage, self.name)

    def without_folds(self) -> None:
        """Remove the folds, which are hints: the next reader has only the entries."""
        shutil.rmtree(PLACE / self.key / "ledger" / "_checkpoint", ignore_errors=True)

    def session(self) -> StreamSession:
        """Return the session of a later run, whose predecessors are gone."""
        state = self.ledger().find()
        owner = {"deployment": state.deployment, "dag_id": "later", "run_id": "later", "task_id": "load"}
        interval = None
        if self.interval is not None:
            interval = DataInterval(*map(datetime.fromisoformat, self.interval))
        return StreamSession(
            DeltaStream.from_dict(self.stream),
            StreamContext(
                staging_uri=str(PLACE / self.staging),
                deployment=state.deployment,
                actor=Actor(**owner, try_number=1),
                owner=Owner(kind="airflow", **owner),
                owner_is_running=lambda _owner: False,
            ),
            interval,
        )

    # facts

    def state(self) -> dict[str, Any]:
        """Return what the ledger says."""
        return facts_of_state(self.ledger().find())

    def status(self) -> dict[str, Any]:
        """Return what ``fds status`` says, as far as it does not depend on the time."""
        found = status_of(self.session().connected)
        names = ("phase", "condition", "epoch", "position", "newest_version", "lag_versions", "last_batch_id")
        names += ("watermark", "planned_batches", "owner", "sink", "entries", "reason_code")
        return {name: getattr(found, name) for name in names}

    def history(self) -> list[list[Any]]:
        """Return kind, author and time of each entry."""
        return [[one.action.kind, one.actor.describe(), one.time, one.request_id] for one in self.ledger().entries()]

    def append(self) -> None:
        """Append one commit to the source, an hour after the newest one. Planning needs no data file."""
        log = Path(DeltaStream.from_dict(self.stream).table.removeprefix("file://")) / "_delta_log"
        newest = max(path for path in log.iterdir() if re.fullmatch(r"\d{20}\.json", path.name))
        time_ms = newest.stat().st_mtime_ns // 1_000_000 + 3_600_000
        statistics = json.dumps({"numRecords": NEW_ROWS})
        add = {"path": "new.parquet", "partitionValues": {}, "size": 1000, "modificationTime": time_ms}
        add |= {"dataChange": True, "stats": statistics}
        actions = [
            {"commitInfo": {"timestamp": time_ms, "operation": "WRITE", "operationParameters": {}}},
            {"add": add},
        ]
        path = log / f"{int(newest.stem) + 1:020d}.json"
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
        os.utime(path, ns=(time_ms * 1_000_000,) * 2)

    def continued(self) -> dict[str, Any]:
        """Let a run begin, and return what it has to do, what it recorded, and the job that it writes for Spark."""
        before = self.ledger()
        before.find()
        session = self.session()
        sink = None if self.sink is None else sink_from_dict(self.sink)
        try:
            work = session.begin(sink, user_job=self.user_job)
        except FdsError as error:
            return {"error": type(error).__name__, "reason_code": str(error.reason_code)}
        found: dict[str, Any] = {
            "status": work.status,
            "batches": [facts_of_batch(batch) for batch in work.batches],
            "entries": [entry.action.kind for entry in before.entries(before.n + 1)],
        }
        if work.status in ("work", "fence") and sink is not None:
            uri = session.job(work, sink)
            found["job"] = facts_of_file(PLACE / uri.partition(f"{PLACE}/")[2])
        return found

    def left(self) -> dict[str, Any] | None:
        """Return what is planned and what follows, as ``fds plan --dry-run`` does; ``None`` without a position."""
        connected = self.session().connected if self.interval is None else None
        if connected is None or connected.load().position is None:
            return None
        rows: list[dict[str, Any]] = []
        error: FdsError | None = None
        try:
            for row in _left(connected):
                if isinstance(row, Outcome):
                    error = row.error
                    break
                rows.append({key: row[key] for key in ("batch_id", "start", "end", "num_files", "num_rows", "skipped")})
        except FdsError as lost:
            error = lost
        return {"batches": rows, "error": None if error is None else type(error).__name__}

    def rewound(self) -> dict[str, Any]:
        """Rewind the stream with ``fds rewind``; return the exit code, the state, and how the next run begins."""
        words = ["rewind", self.name, "--to", "0", "--why", "a golden rewind", "--yes", "--sink-rows", "keep"]
        words += self.rewind
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            code = fds([*words, "--staging", str(PLACE / self.staging)])
        return {"exit_code": code, "state": self.state(), "next": self.continued()}


def facts_of_batch(batch: PlannedBatch) -> dict[str, Any]:
    """Return the facts of a planned batch."""
    names = ("batch_id", "start", "end", "first_version", "last_version", "num_files", "num_rows", "prev_txn_version")
    return {name: getattr(batch, name) for name in names}


def facts_of_state(state: StreamState) -> dict[str, Any]:
    """Return what a ledger says, as JSON values."""
    names = ("phase", "epoch", "uuid", "table", "deployment", "position", "epoch_start", "next_batch_id", "table_id")
    names += ("sink_version", "sink_table_id", "tables", "watermark", "start_kept", "prev_txn_version")
    names += ("last_txn_end", "last_commit_sha256", "options_digest", "meaning_digest", "range_options")
    found = {name: getattr(state, name) for name in names}
    found["planned"] = [{**facts_of_batch(one), "digest": one.digest} for one in state.planned]
    found["sink"] = None if state.sink is None else state.sink.describe()
    found["origin"] = None if state.origin is None else [state.origin.stream, state.origin.offset]
    found["snapshot"] = None if state.snapshot is None else [state.snapshot.version, state.snapshot.num_files]
    if (committed := state.last_committed) is not None:
        found["last_committed"] = [committed.epoch, committed.batch_id, committed.outcome, committed.rows]
    if (request := state.request) is not None:
        found["request"] = [request.reason, request.why, request.to]
    if (closed := state.closed) is not None:
        found["closed"] = [closed.epoch, closed.position]
    if (ended := state.ended) is not None:
        found["ended"] = [ended.instant, ended.version]
    if (submitted := state.submitted) is not None:
        found["submitted"] = [submitted.epoch, submitted.batch_id, submitted.cluster, submitted.driver]
    for name in ("blocked", "accepted"):
        if (word := getattr(state, name)) is not None:
            found[name] = [word.batch_id, word.reason]
    for name in ("quarantined", "held", "retired"):
        if (word := getattr(state, name)) is not None:
            found[name] = word.why
    found["shown"] = [[one.epoch, one.batch_id, one.sink_version] for one in state.shown]
    found["acknowledged"] = [[one.version, one.who, one.why, one.skip] for one in state.acknowledged]
    found["boundaries"] = [[one.instant, one.version] for one in state.boundaries]
    found["intervals"] = [
        [one.interval, one.generation, one.first_version, one.last_version, one.is_done] for one in state.intervals
    ]
    return json.loads(json.dumps(found))


def facts_of_checkpoint(path: Path) -> dict[str, Any]:
    """Return the facts of a checkpoint's value."""
    found = Checkpoint.from_json(path.read_bytes(), home=str(path))
    names = ("stream", "uuid", "deployment", "n", "digest", "epoch", "batch_id", "offset")
    return {name: getattr(found, name) for name in names}


def decoded(path: Path) -> Any:
    """Return a file of a golden folder as today's code reads it: an entry, a report, a spec, a status file.

    Returns:
        ``None`` for other files.
    """
    name, data = path.relative_to(PLACE).as_posix(), path.read_bytes()
    for pattern, read in (
        (r"[^/]+/[^./][^/]*/ledger/\d{20}\.json", lambda: Entry.from_json(data, where=name)),
        (r"checkpoints/.*", lambda: Checkpoint.from_json(data, home=name)),
        (r".*/attempts/.*/fence/[^/.]+\.json", lambda: decode(FenceReport, data)),
        (r".*/attempts/.*/\d+/[^/.]+\.json", lambda: decode(AttemptReport, data)),
        (r".*\.job\.json", lambda: JobSpec.from_file(name, data)),
        (r".*\.fleet\.json", lambda: FleetSpec.from_file(name, data)),
        (r"[^/]+/\.status/.*\.json", lambda: msgspec.json.decode(data, type=StatusFile)),
    ):
        if re.fullmatch(pattern, name):
            return read()
    return None


def plain(value: Any) -> Any:
    """Return a decoded file as the JSON values that today's code writes for it."""
    return json.loads(value.to_json() if hasattr(value, "to_json") else msgspec.json.encode(value))


def facts_of_file(path: Path) -> dict[str, Any] | None:  # noqa: PLR0911  # a return for each kind of file
    """Return the facts of a report, a spec, a manifest, a frozen snapshot, a status file or an archive.

    Returns:
        ``None`` for other files.
    """
    name = path.relative_to(PLACE).as_posix()
    found = decoded(path)
    if isinstance(found, AttemptReport):
        names = ("uuid", "epoch", "batch_id", "manifest_digest", "outcome", "sink_version", "rows_planned", "rows_read")
        names += ("rows_written", "error_class", "retryable", "tables")
        return {name: getattr(found, name) for name in names}
    if isinstance(found, FenceReport):
        names = ("uuid", "epoch", "outcome", "sink_version", "removed_rows")
        facts = {name: getattr(found, name) for name in names}
        return {**facts, "landed": [[one.epoch, one.batch_id, one.sink_version] for one in found.landed]}
    if isinstance(found, JobSpec):
        facts = {"sink": found.sink["kind"], "sink_version": found.sink_version, "tables": found.tables}
        facts["batches"] = [
            [b.epoch, b.batch_id, b.start, b.end, b.after, b.num_rows, b.interval] for b in found.batches
        ]
        facts["fence"] = None if found.fence is None else [found.fence.epoch, found.fence.txn_app_id]
        return facts
    if isinstance(found, FleetSpec):
        return {"jobs": [[one.stream, one.num_bytes] for one in found.jobs], "parallelism": found.parallelism}
    if isinstance(found, StatusFile):
        row = parse_row(path.read_bytes())
        assert row is not None
        return {key: getattr(row, key) for key in ("name", "condition", "epoch", "position", "dag_id", "written_by")}
    if re.fullmatch(r".*/manifests/.*/_delta_log/0{20}\.json", name):
        log = DeltaLog(LocalStorage(str(path.parents[1])))
        adds = [add for add in json_lines(path) if "add" in add]
        return {"version": log.latest(), "files": [one["add"]["path"].rsplit("/", 1)[-1] for one in adds]}
    if re.fullmatch(r".*/snapshots/[^/]+\.parquet", name):
        version, _, digest = path.stem.partition("-")
        snapshot = _snapshot(path, int(version), digest)
        adds = snapshot.adds(LocalStorage(str(path.parents[1])))
        return {"version": snapshot.version, "files": [[n, add.path, add.size] for n, add in adds]}
    if name.startswith("exports/"):
        contents = LedgerArchive.read(path).contents
        return {"stream": contents.stream, "uuid": contents.uuid, "deployment": contents.deployment, "n": contents.n}
    return None


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def _snapshot(path: Path, version: int, digest: str) -> FrozenSnapshot:
    import pyarrow.parquet as pq

    rows = pq.read_metadata(path).num_rows
    return FrozenSnapshot(version, digest, f"{path.parent.name}/{path.name}", rows, 0)


def all_files() -> list[Path]:
    """Return the files of the folder that is in the place."""
    return [PLACE / path for path in sorted(_files(PLACE))]
