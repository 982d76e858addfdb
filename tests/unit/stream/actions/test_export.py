"""``fds admin export`` and ``fds admin import``: a ledger in a file.

Runs on both sides are in tests/interop/spark/test_take_over.py.
"""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, StorageError
from airflow_provider_fds.ledger.entries.operator_entries import Held, Retired
from airflow_provider_fds.ledger.staging.archive import LedgerArchive, write_archive
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaReplaceSink
from airflow_provider_fds.stream import DataInterval, DeltaStream, StreamSession

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_fds.ledger.entries.action import BaseAction


class Sites:
    """A stream at one staging folder, and a second, empty one."""

    def __init__(self, bench: Any, sink: Any, tmp_path: Path, capsys: Any) -> None:
        self.bench, self.sink, self.capsys = bench, sink, capsys
        self.file = tmp_path / "orders.fds"
        self.there = tmp_path / "other staging"
        self.stream: DeltaStream = bench.stream(starting_version=None, max_files_per_batch=1)

    def load(self, run: str, batches: int) -> None:
        self.bench.run_once(self.sink, run, self.stream, max_batches=batches)

    def decide(self, action: BaseAction) -> None:
        session = self.bench.session("person", stream=self.stream)
        session.connected.load()
        session.connected.execute(action)

    def fds(self, *arguments: str) -> tuple[int, str]:
        code = main(list(arguments))
        out = self.capsys.readouterr()
        return code, out.out + out.err

    def export(self) -> tuple[int, str]:
        return self.fds("admin", "export", "orders", str(self.file), "--staging", str(self.bench.staging))

    def import_(self, *more: str) -> tuple[int, str]:
        return self.fds(
            "admin", "import", str(self.file), "--staging", str(self.there), "--deployment", "new", "--yes", *more
        )

    def ledger(self, *, there: bool) -> Ledger:
        ledger = Ledger(open_storage(str(self.there if there else self.bench.staging)), "orders")
        ledger.find()
        return ledger

    def bytes_of(self, staging: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((staging / "orders" / "ledger").glob("*.json"))}


@pytest.fixture
def sites(bench: Any, sink: Any, tmp_path: Path, capsys: Any, log_builder: Any) -> Sites:
    """The stream has loaded 2 of the 4 files of its initial snapshot, and is held."""
    log_builder.create()
    log_builder.append(4)
    sites = Sites(bench, sink, tmp_path, capsys)
    sites.load("run-1", 2)
    sites.decide(Held(why="a move"))
    return sites


def test_an_import_is_shown_before_it_writes_anything(sites):
    assert sites.export()[0] == 0
    words = ("admin", "import", str(sites.file), "--staging", str(sites.there), "--deployment", "new")
    for more, expected in ((("--dry-run",), 0), ((), 2)):
        code, text = sites.fds(*words, *more)
        assert code == expected, text
        assert "before: of deployment 'test', ledger entries 0 to " in text
        assert "after:  of deployment 'new', in " in text
        assert not sites.there.exists() or not any(sites.there.rglob("*.json"))


def test_the_ledger_arrives_byte_for_byte_and_the_stream_continues_under_its_new_owner(sites):
    before = sites.bytes_of(sites.bench.staging)
    old = sites.ledger(there=False).state
    code, text = sites.export()
    assert code == 0, text
    assert f"ledger entries 0 to {len(before) - 1}" in text
    assert sites.file.stat().st_mode & 0o077 == 0
    code, text = sites.import_("--why", "to the new cluster")
    assert code == 0, text
    assert "the snapshot of version 1, 2 files in" in text

    assert sites.bytes_of(sites.bench.staging) == before
    arrived = sites.bytes_of(sites.there)
    assert {name: arrived[name] for name in before} == before
    ledger = sites.ledger(there=True)
    kinds = [entry.action.kind for entry in ledger.entries(len(before))]
    assert kinds == ["requested"]
    state = ledger.state
    assert (state.uuid, state.deployment, state.epoch, state.phase) == (old.uuid, "new", old.epoch + 1, "requested")
    assert (state.closed.position, state.closed.snapshot, state.held.why) == (old.position, old.snapshot, "a move")
    assert (sites.there / "orders" / old.snapshot.key).exists()
    transferred = next(ledger.entries(len(before)))
    assert transferred.action.why.startswith("to the new cluster (from 'test', SHA-256 ")


@pytest.mark.parametrize("deployment", ["new", "test"])
def test_the_same_command_again_does_nothing(sites, deployment):
    assert sites.export()[0] == 0
    place = ("--deployment", deployment)
    assert sites.import_(*place)[0] == 0
    before = sites.bytes_of(sites.there)
    code, text = sites.import_(*place)
    assert (code, "was already imported" in text) == (0, True), text
    assert sites.bytes_of(sites.there) == before


@pytest.mark.parametrize("last", range(0, 12, 2))
def test_an_import_that_is_interrupted_leaves_no_stream_and_is_completed_by_the_next(sites, monkeypatch, last):
    assert sites.export()[0] == 0
    archive = LedgerArchive.read(sites.file)
    storage = open_storage(str(sites.there))
    put, calls = storage.put_if_absent, 0

    def failing(key: str, data: bytes) -> bool:
        nonlocal calls
        calls += 1
        if calls > last:
            raise StorageError("gone")
        return put(key, data)

    monkeypatch.setattr(storage, "put_if_absent", failing)
    if last <= archive.contents.n:
        with pytest.raises(StorageError):
            archive.put_into(storage)
        found = Ledger(open_storage(str(sites.there)), "orders")
        if last:
            with pytest.raises(Exception, match="is missing"):
                found.find()
        else:
            assert found.find().phase == "empty"
    assert sites.import_()[0] == 0
    assert sites.ledger(there=True).state.deployment == "new"


def test_entries_that_continue_an_older_copy_never_mix_with_those_of_a_run_there(sites, monkeypatch):
    assert sites.export()[0] == 0
    archive = LedgerArchive.read(sites.file)
    storage = open_storage(str(sites.there))
    before = sites.bytes_of(sites.bench.staging)
    folder = sites.ledger(there=False).folder
    for name in list(before)[:3]:
        storage.put(f"{folder.entries}/{name}", before[name])
    listed = storage.list_after

    def meanwhile(*arguments: str) -> Any:
        yield from listed(*arguments)
        storage.put_if_absent(folder.entry(3), b"another run")

    monkeypatch.setattr(storage, "list_after", meanwhile)
    with pytest.raises(Exception, match="ledger entry 3 is not the one in"):
        archive.put_into(storage)
    assert len(sites.bytes_of(sites.there)) == 4


def test_a_stream_that_may_go_on_or_has_ended_is_refused(sites, tmp_path):
    other = sites.bench.stream("second")
    sites.bench.run_once(type(sites.sink)(str(tmp_path / "second")), "run-1", other)
    staging = ("--staging", str(sites.bench.staging))
    code, text = sites.fds("admin", "export", "second", str(sites.file), *staging)
    assert (code, "fds hold second" in text) == (2, True), text
    sites.decide(Retired(why="done"))
    code, text = sites.export()
    assert (code, "is retired" in text) == (2, True), text
    code, text = sites.fds("admin", "export", "third", str(sites.file), *staging)
    assert (code, "there is no stream 'third'" in text) == (2, True), text
    assert not sites.file.exists()


def test_a_file_is_never_overwritten(sites):
    sites.file.write_text("mine")
    code, text = sites.export()
    assert (code, "is not overwritten" in text) == (2, True), text
    assert [path.name for path in sites.file.parent.iterdir() if path.suffix in (".fds", ".part")] == ["orders.fds"]
    assert sites.file.read_text() == "mine"


def test_another_stream_of_the_name_is_never_overwritten(sites):
    assert sites.export()[0] == 0
    again = ("plan", str(sites.bench.table), "--stream", "orders", "--staging", str(sites.there))
    assert sites.fds(*again)[0] == 0
    before = sites.bytes_of(sites.there)
    code, text = sites.import_()
    assert (code, "It is not overwritten" in text) == (2, True), text
    assert sites.bytes_of(sites.there) == before


def test_an_old_file_does_not_touch_a_stream_that_has_gone_on(sites):
    assert sites.export()[0] == 0
    sites.there = sites.bench.staging
    session = sites.bench.session("person", stream=sites.stream)
    session.connected.load()
    main(["resume", "orders", "--staging", str(sites.there), "--why", "go on"])
    before = sites.bytes_of(sites.there)
    code, text = sites.import_()
    assert (code, "has continued since it was exported" in text) == (2, True), text
    assert sites.bytes_of(sites.there) == before


def test_a_stream_can_return_to_the_folder_that_it_came_from(sites):
    assert sites.export()[0] == 0
    assert sites.import_()[0] == 0
    back = sites.file.with_name("back.fds")
    assert sites.fds("admin", "export", "orders", str(back), "--staging", str(sites.there))[0] == 0
    place = ("--staging", str(sites.bench.staging), "--deployment", "test")
    code, text = sites.fds("admin", "import", str(back), "--yes", *place)
    assert code == 0, text
    assert sites.ledger(there=False).state.deployment == "test"


def test_a_requested_epoch_takes_the_snapshot_that_it_may_begin_in_with_it(sites):
    snapshot = sites.ledger(there=False).state.snapshot
    assert sites.fds("replan", "orders", "--staging", str(sites.bench.staging), "--why", "again", "--yes")[0] == 0
    assert sites.export()[0] == 0
    assert sites.import_()[0] == 0
    state = sites.ledger(there=True).state
    assert (state.phase, state.closed.snapshot) == ("requested", snapshot)
    assert (sites.there / "orders" / snapshot.key).exists()


def test_a_fork_that_has_not_begun_takes_its_snapshot_with_it(sites, tmp_path):
    from airflow_provider_fds.stream.epochs.opening import ensure_created

    session = sites.bench.session("fork", stream=sites.stream.fork("audit"))
    state = ensure_created(session.connected, None)
    session.connected.execute(Held(why="a move"))
    assert sites.fds("admin", "export", "audit", str(sites.file), "--staging", str(sites.bench.staging))[0] == 0
    assert sites.import_()[0] == 0
    assert (sites.there / "audit" / state.origin.snapshot.key).exists()


@pytest.mark.parametrize("replaces", [False, True])
def test_an_interval_in_progress_is_refused_unless_it_would_be_planned_again(sites, tmp_path, replaces):
    uri = str(tmp_path / "days")
    sink = DeltaReplaceSink(uri, replace_where="true") if replaces else DeltaAppendSink(uri)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    context = sites.bench.session("day").context
    stream = DeltaStream("days", table=str(sites.bench.table), read="data_interval")
    session = StreamSession(stream, context, DataInterval(start, start + timedelta(minutes=2)))
    assert session.begin(sink).status == "work"
    session.connected.execute(Held(why="a move"))
    code, text = sites.fds("admin", "export", "days", str(sites.file), "--staging", str(sites.bench.staging))
    if replaces:
        # no fence closes an interval of the old folder
        assert (code, "both would load the same rows" in text) == (0, True), text
    else:
        assert (code, "has planned batches of the data interval 2024-01-01T00:00:00" in text) == (2, True), text
        assert not sites.file.exists()


# -- damage


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused_and_nothing_is_written(sites, share):
    assert sites.export()[0] == 0
    data = sites.file.read_bytes()
    sites.file.write_bytes(data[: int(len(data) * share)])
    code, text = sites.import_()
    assert (code, "is damaged, or is not an exported stream" in text) == (2, True), text
    assert not (sites.there / "orders" / "ledger").exists()


def test_a_file_with_a_changed_byte_is_refused_wherever_that_is(sites):
    assert sites.export()[0] == 0
    data = bytearray(sites.file.read_bytes())
    whole = LedgerArchive.read(sites.file)
    for place in range(0, len(data), 97):
        changed = bytearray(data)
        changed[place] ^= 0x10
        sites.file.write_bytes(changed)
        try:
            found = LedgerArchive.read(sites.file)
        except ConfigurationError:
            continue
        # a byte that the archive format does not use, such as a time
        assert found == whole


def rewritten(file: Path, **changes: Any) -> None:
    """Write the archive again with other contents and a digest that fits them."""
    import hashlib

    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    contents = {**msgspec.json.decode(parts["contents.json"])["contents"], **changes}
    data = msgspec.json.encode(contents)
    stored = {"sum": hashlib.sha256(data).hexdigest(), "contents": msgspec.Raw(data)}
    with zipfile.ZipFile(file, "w") as archive:
        for name, part in {**parts, "contents.json": msgspec.json.encode(stored)}.items():
            archive.writestr(name, part)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"format": 2, "writer": "9.9.9"}, "Install FDS 9.9.9 or newer"),
        ({"stream": "../orders"}, "invalid stream name"),
        ({"files": {"../../x": "0"}}, "is missing"),
        ({"digest": "0" * 32}, "does not match its digest"),
    ],
    ids=["format", "name", "files", "digest"],
)
def test_contents_that_are_not_those_of_a_ledger_are_refused(sites, changes, part):
    assert sites.export()[0] == 0
    rewritten(sites.file, **changes)
    code, text = sites.import_()
    assert (code, part in text) == (2, True), text


def test_a_key_outside_of_the_stream_is_refused(sites):
    assert sites.export()[0] == 0
    files = LedgerArchive.read(sites.file).contents.files
    rewritten(sites.file, files={"../../x": "0", **files})
    code, text = sites.import_()
    assert (code, "is not a file in 'snapshots/'" in text) == (2, True), text


def test_a_ledger_that_cannot_be_read_is_not_exported(sites):
    ledger = sites.ledger(there=False)
    (sites.bench.staging / ledger.folder.entry(2)).write_bytes(b"{")
    with pytest.raises(Exception, match="cannot be exported"):
        write_archive(ledger, sites.file)
    assert not sites.file.exists()
