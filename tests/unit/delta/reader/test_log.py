from __future__ import annotations

import json

import deltalake
import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import (
    LogGapError,
    LogRewoundError,
    LogTruncatedError,
    StorageError,
    TableNotFoundError,
    TornFileError,
    UnsupportedFeatureError,
)


class CountingStorage(LocalStorage):
    """A local storage that counts what object stores would bill; not one whose files are read one by one."""

    def __init__(self, path):
        super().__init__(path)
        self.requests = []

    def head(self, key):
        self.requests.append("HEAD")
        return super().head(key)

    def list_after(self, folder, after=None):
        self.requests.append("LIST")
        for name in sorted(path.name for path in (self.root / folder).iterdir() if path.is_file()):
            if not name.startswith(".") and (after is None or name > after):
                yield LocalStorage.head(self, f"{folder}/{name}")


@pytest.fixture
def log(log_builder):
    return DeltaLog(LocalStorage(str(log_builder.root)))


@pytest.fixture
def six_versions(log_builder):
    log_builder.create()
    for _ in range(5):
        log_builder.append(2)
    return log_builder


# which version is the newest


def test_the_newest_version_is_found_with_and_without_a_known_one(log, six_versions):
    assert log.latest() == 5
    assert [log.latest(known) for known in range(-1, 6)] == [5] * 7


def test_nothing_new_costs_one_head_and_something_new_one_list_more(six_versions):
    storage = CountingStorage(str(six_versions.root))
    log = DeltaLog(storage)
    assert log.latest(5) == 5
    assert storage.requests == ["HEAD"]
    storage.requests.clear()
    assert log.latest(2) == 5
    assert storage.requests == ["HEAD", "LIST"]


async def test_a_poll_is_exactly_one_head(six_versions):
    storage = CountingStorage(str(six_versions.root))
    log = DeltaLog(storage)
    assert await log.probe_async(5)
    assert not await log.probe_async(6)
    assert storage.requests == ["HEAD", "HEAD"]


async def test_an_empty_file_at_the_head_is_not_a_version_yet(log, six_versions):
    six_versions.write_raw(6, b"")
    assert not await log.probe_async(6)
    assert log.latest() == 5
    assert log.latest(5) == 5


def test_junk_beside_the_log_is_not_taken_for_commits(log, six_versions):
    v9 = "00000000000000000009"
    junk = ("9.json", f".{v9}.json.crc", f"{v9}.crc", f"{v9}.json.bak", f".{v9}.json.7.tmp", f"_commit_{v9}.json.tmp")
    for name in (*junk, "00000000000000000000.00000000000000000009.compacted.json"):
        (six_versions.log / name).write_text("{}")
    for folder in ("_staged_commits", "_sidecars", "_commits"):
        (six_versions.log / folder).mkdir()
        (six_versions.log / folder / f"{v9}.json").write_text("{}")
    assert log.latest() == 5
    assert log.verify_position(3) == 5
    assert [commit.version for commit in log.commits(0, 5)] == list(range(6))


def test_heads_find_an_object_that_a_listing_does_not_show(six_versions):
    for _ in range(20):
        six_versions.append()

    class Forgetful(CountingStorage):
        def list_after(self, folder, after=None):
            self.requests.append("LIST")
            return iter(())

    storage = Forgetful(str(six_versions.root))
    assert DeltaLog(storage).latest(3) == 25
    assert storage.requests.count("HEAD") <= 13


@pytest.mark.parametrize("hint", ['{"version":3,"size":1}', '{"version":99}', '{"vers', "", '{"version":-4}', "[]"])
def test_last_checkpoint_is_only_a_hint(log, six_versions, hint):
    (six_versions.log / "_last_checkpoint").write_text(hint)
    assert log.latest() == 5


# what is wrong with a log


def test_nothing_at_the_uri_is_table_not_found(log):
    for call in (log.latest, lambda: log.verify_position(0), log.earliest, lambda: log.commit(0)):
        with pytest.raises(
            TableNotFoundError, match=r"no Delta table at file:///.*nothing exists there.*Check the path"
        ):
            call()


def test_a_folder_that_is_not_delta_is_table_not_found(log, log_builder):
    log_builder.root.mkdir()
    with pytest.raises(TableNotFoundError, match="the folder exists, but it has no commits in _delta_log"):
        log.latest()
    (log_builder.root / "part-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(TableNotFoundError, match=r"files such as 'part-0.parquet', but no commits"):
        log.latest()


def test_a_log_without_commits_is_table_not_found(log, log_builder):
    log_builder.log.mkdir(parents=True)
    (log_builder.log / "_last_checkpoint").write_text("{}")
    with pytest.raises(TableNotFoundError, match="its _delta_log has no commits"):
        log.latest()


def test_log_cleanup_past_the_reader_is_an_error_with_the_oldest_version_left(log, six_versions):
    six_versions.clean_up_before(4)
    for call in (lambda: log.verify_position(2), lambda: log.commit(2), lambda: list(log.commits(2, 5))):
        with pytest.raises(LogTruncatedError, match=r"version 2 of .*oldest remaining commit is version 4") as caught:
            call()
        assert (caught.value.version, caught.value.earliest_version) == (2, 4)
    assert log.earliest() == 4


def test_a_head_alone_does_not_notice_cleanup_but_the_listing_does(log, six_versions):
    six_versions.clean_up_before(5)
    assert log.latest(2) == 2
    with pytest.raises(LogTruncatedError):
        log.verify_position(3)


def test_cleanup_up_to_the_very_next_version_loses_nothing(log, six_versions):
    six_versions.clean_up_before(4)
    assert log.verify_position(4) == 5
    assert log.latest(3) == 5


def test_only_a_newer_checkpoint_left_is_truncated_too(log, six_versions):
    six_versions.clean_up_before(6)
    (six_versions.log / "00000000000000000005.checkpoint.parquet").write_bytes(b"x")
    with pytest.raises(LogTruncatedError):
        log.verify_position(3)
    assert log.latest() == 5


def test_a_hole_in_the_log_is_a_gap_that_names_the_missing_versions(log, six_versions):
    six_versions.path_of(3).unlink()
    for call in (log.latest, lambda: log.verify_position(1), lambda: log.latest(1), lambda: log.list_commits(1, 5)):
        with pytest.raises(LogGapError, match=r"version 3 is missing.*has versions 2 and 4") as caught:
            call()
        assert caught.value.version == 3
    six_versions.path_of(2).unlink()
    with pytest.raises(LogGapError, match="versions 2 to 3 are missing"):
        log.commit(3)


def test_everything_before_a_gap_is_still_read(log, six_versions):
    six_versions.path_of(3).unlink()
    versions = []
    with pytest.raises(LogGapError):
        versions.extend(commit.version for commit in _collecting(log.commits(0, 5), versions))
    assert versions == [0, 1, 2]


def test_a_hole_below_the_newest_checkpoint_is_cleanup_at_work(log, six_versions):
    six_versions.path_of(1).unlink()
    (six_versions.log / "00000000000000000003.checkpoint.parquet").write_bytes(b"x")
    assert log.latest() == 5


def test_a_gap_that_a_second_listing_fills_is_not_an_error(six_versions):
    class LateListing(CountingStorage):
        def list_after(self, folder, after=None):
            for item in super().list_after(folder, after):
                if self.requests.count("LIST") > 1 or not item.key.endswith("3.json"):
                    yield item

    storage = LateListing(str(six_versions.root))
    assert DeltaLog(storage).verify_position(1) == 5
    storage.requests.clear()
    assert [commit.version for commit in DeltaLog(storage).commits(0, 5)] == list(range(6))


def test_a_position_above_the_newest_version_is_a_rewound_table(log, six_versions):
    assert log.verify_position(6) == 5
    for call in (lambda: log.verify_position(8), lambda: log.commit(7), lambda: list(log.commits(4, 7))):
        with pytest.raises(LogRewoundError, match=r"no longer has version .: its newest version is 5"):
            call()


def test_an_empty_file_in_the_middle_is_torn_and_not_a_gap(log, six_versions):
    six_versions.write_raw(3, b"")
    for call in (log.latest, lambda: log.verify_position(2), lambda: log.commit(3)):
        with pytest.raises(TornFileError, match=r"version 3 of .*is empty") as caught:
            call()
        assert caught.value.version == 3


def test_a_version_that_appears_and_disappears_is_a_storage_error(six_versions):
    class Blind(CountingStorage):
        def head(self, key):
            return None

    with pytest.raises(StorageError, match="was not found, but a later listing contains it"):
        DeltaLog(Blind(str(six_versions.root))).commit(3)


# the listing and the state


def test_the_commits_of_a_range_are_listed_with_size_and_time(log, six_versions):
    listed = log.list_commits(2, 4)
    assert [item.key[-7:] for item in listed] == ["02.json", "03.json", "04.json"]
    assert [item.modified_ms for item in listed] == [six_versions.time_of(v) for v in (2, 3, 4)]
    assert log.list_commits(3, 2) == []


def test_protocol_and_metadata_are_those_in_force_at_the_version(log, log_builder):
    log_builder.create(configuration={"a": "1"})
    log_builder.append()
    log_builder.commit(log_builder.metadata(configuration={"a": "2"}))
    log_builder.commit({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}})
    assert [log.state_at(v).metadata.property("a") for v in range(4)] == ["1", "1", "2", "2"]
    assert [log.state_at(v).protocol.minReaderVersion for v in range(4)] == [1, 1, 1, 2]


def test_a_state_that_fds_cannot_read_is_refused_at_its_version_only(log, log_builder):
    log_builder.create()
    log_builder.commit(
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}}
    )
    assert log.state_at(0).version == 0
    with pytest.raises(UnsupportedFeatureError, match=r"version 1 of .*'x'"):
        log.state_at(1)


def test_the_newest_state_that_can_be_read_is_found_with_the_error_of_the_newest(log, six_versions):
    assert log.newest_readable() == (log.state_at(5), None)
    six_versions.version = 5
    for feature in ("x", "y"):
        future = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": [feature],
            "writerFeatures": [feature],
        }
        six_versions.commit({"protocol": future})
    for first in (0, 5):
        state, error = log.newest_readable(first)
        assert state == log.state_at(5)
        assert isinstance(error, UnsupportedFeatureError)
    with pytest.raises(UnsupportedFeatureError, match=r"version 7 of .*'y'"):
        log.newest_readable(6)


def test_a_log_without_metadata_is_damaged(log, log_builder):
    log_builder.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
    with pytest.raises(TornFileError, match="has no metaData action up to version 0"):
        log.state_at(0)


def test_the_state_below_what_cleanup_left_is_truncated(log, six_versions):
    six_versions.clean_up_before(2)
    with pytest.raises(LogTruncatedError):
        log.state_at(4)


def test_a_cut_off_commit_stops_the_search_for_the_state(log, six_versions):
    content = six_versions.path_of(3).read_bytes()
    six_versions.write_raw(3, content[:-20])
    with pytest.raises(TornFileError):
        log.state_at(5)


def test_commits_are_read_ahead_from_stores_that_are_not_local_in_the_right_order(six_versions):
    class Remote:
        """Delegates, so that it is no local storage."""

        def __init__(self, inner):
            self.inner = inner
            self.uri = inner.uri

        def __getattr__(self, name):
            return getattr(self.inner, name)

    log = DeltaLog(Remote(LocalStorage(str(six_versions.root))))
    for window in (1, 3, 64):
        assert [commit.version for commit in log.commits(1, 5, window=window)] == [1, 2, 3, 4, 5]
    six_versions.path_of(4).unlink()
    versions = []
    with pytest.raises(LogGapError):
        versions.extend(commit.version for commit in _collecting(log.commits(0, 5), versions))
    assert versions == [0, 1, 2, 3]


def test_the_log_ignores_unknown_fields_of_a_hint(log, six_versions):
    (six_versions.log / "_last_checkpoint").write_text(json.dumps({"version": 3, "v2Checkpoint": {"path": "x"}}))
    assert log.latest() == 5


def _collecting(commits, into):
    for commit in commits:
        into.append(commit.version)
    yield from ()


def test_a_checkpoint_of_the_first_version_after_a_gap_is_one_after_the_gap(log_builder, log):
    log_builder.with_appends(6)
    deltalake.DeltaTable(str(log_builder.root)).create_checkpoint()
    log_builder.append()
    log_builder.path_of(5).unlink()
    with pytest.raises(LogGapError, match=r"missing from the log.*continue after the gap under another stream name"):
        list(log.list_commits(4, 7))
