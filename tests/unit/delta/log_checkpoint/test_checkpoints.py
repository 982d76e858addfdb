from __future__ import annotations

import pytest

from airflow_provider_fds.delta.log_checkpoint.checkpoints import (
    checkpoint_state,
    checkpoint_transactions,
    find_checkpoint,
)
from airflow_provider_fds.delta.reader.replay import live_rows
from airflow_provider_fds.errors import LogTruncatedError, TornFileError

ALL_FORMS = ["classic", "parts", "v2 parquet", "v2 json", "v2 content under a classic name"]


def write(checkpoint_writer, form):
    match form:
        case "classic":
            checkpoint_writer.classic()
        case "parts":
            checkpoint_writer.parts(3)
        case "v2 parquet":
            checkpoint_writer.v2("parquet")
        case "v2 json":
            checkpoint_writer.v2("json")
        case _:
            version = checkpoint_writer.builder.version
            checkpoint_writer.v2("parquet", name=f"{version:020d}.checkpoint.parquet")


@pytest.fixture
def two_checkpoints(log_builder, checkpoint_writer):
    """A table with checkpoints of versions 2 and 5, newest version 7."""
    log_builder.create(configuration={"delta.appendOnly": "true"})
    for version in range(1, 8):
        log_builder.append()
        if version in (2, 5):
            checkpoint_writer.classic()
    return log_builder


def test_a_log_without_checkpoint_has_none(log_builder, log):
    log_builder.create()
    log_builder.append()

    assert find_checkpoint(log, 1) is None


@pytest.mark.parametrize(("version", "expected"), [(7, 5), (5, 5), (4, 2), (2, 2), (1, None), (0, None)])
@pytest.mark.parametrize("hint", [None, 2, 5])
def test_the_newest_checkpoint_up_to_the_version_is_found_with_and_without_a_hint(
    two_checkpoints, checkpoint_writer, log, version, expected, hint
):
    if hint is not None:
        checkpoint_writer.hint(hint)

    found = find_checkpoint(log, version)

    assert (found.version if found else None) == expected


@pytest.mark.parametrize(
    "hint",
    ['{"version": 5, "si', "", "[]", '{"size": 3}', '{"version": "five"}', '{"version": -3}', 4, 6, 999],
    ids=["torn", "empty", "no object", "no version", "no number", "negative", "no such", "no such", "ahead of all"],
)
def test_a_wrong_last_checkpoint_is_only_a_wrong_hint(two_checkpoints, checkpoint_writer, log, hint):
    checkpoint_writer.hint(hint)

    assert find_checkpoint(log, 7).version == 5
    assert find_checkpoint(log, 3).version == 2


@pytest.mark.parametrize("distance", [3, 99, 100, 101, 950, 12_345])
def test_a_checkpoint_far_after_the_version_is_found_without_a_hint(log_builder, checkpoint_writer, log, distance):
    log_builder.create()
    checkpoint_writer.classic()

    assert find_checkpoint(log, distance).version == 0


def test_a_multi_part_checkpoint_counts_only_with_all_its_parts(log_builder, checkpoint_writer, log):
    log_builder.create()
    log_builder.append(5)
    checkpoint_writer.parts(3)
    log_builder.append()
    checkpoint_writer.parts(3, without=[2])

    found = find_checkpoint(log, 2)

    assert (found.version, found.kind) == (1, "multipart")
    assert [key.split(".")[-3:-1] for key in found.keys] == [[f"{p:010d}", f"{3:010d}"] for p in (1, 2, 3)]


def test_parts_of_two_checkpoints_of_one_version_are_not_mixed(log_builder, checkpoint_writer, log):
    log_builder.create()
    log_builder.append(5)
    checkpoint_writer.parts(2, without=[2])
    checkpoint_writer.parts(3, without=[1])

    assert find_checkpoint(log, 1) is None


def test_an_empty_checkpoint_file_does_not_count(two_checkpoints, log):
    (two_checkpoints.log / f"{5:020d}.checkpoint.parquet").write_bytes(b"")

    assert find_checkpoint(log, 7).version == 2


def test_files_that_only_look_like_checkpoints_do_not_count(log_builder, log):
    log_builder.create()
    for name in (
        "00000000000000000000.checkpoint.parquet.bak",
        "00000000000000000000.checkpoint.json",
        "0.checkpoint.parquet",
        ".00000000000000000000.checkpoint.parquet.crc",
        "00000000000000000000.checkpoint.0000000002.0000000001.parquet",
    ):
        (log_builder.log / name).write_bytes(b"x")

    assert find_checkpoint(log, 0) is None


def test_of_several_checkpoints_of_one_version_the_one_that_spark_reads_is_used(log_builder, checkpoint_writer, log):
    log_builder.create()
    log_builder.append(3)
    kinds = []
    for form in ("classic", "parts", "v2 json"):
        write(checkpoint_writer, form)
        kinds.append(find_checkpoint(log, 1).kind)

    assert kinds == ["classic", "multipart", "v2"]


@pytest.mark.parametrize("form", ALL_FORMS)
def test_every_form_of_checkpoint_has_protocol_and_metadata(log_builder, checkpoint_writer, log, form):
    checkpoint_writer.protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint"],
    }
    log_builder.create([log_builder.field("id"), log_builder.field("day", "string")])
    log_builder.append(4)
    write(checkpoint_writer, form)

    protocol, metadata = checkpoint_state(log, find_checkpoint(log, 1))

    assert (protocol.minReaderVersion, protocol.readerFeatures) == (3, ("v2Checkpoint",))
    assert (metadata.id, metadata.partitionColumns) == (log_builder.table_id, ())


def test_metadata_of_a_checkpoint_equals_that_of_the_commit(log_builder, checkpoint_writer, log):
    configuration = {"delta.appendOnly": "true", "é ü": ""}
    fields = [log_builder.field("id"), log_builder.field("p", "string")]
    metadata_action = log_builder.metadata(fields, ["p"], configuration)
    log_builder.metadata = lambda: metadata_action
    log_builder.commit({"protocol": checkpoint_writer.protocol}, log_builder.metadata())
    checkpoint_writer.classic()

    protocol, metadata = checkpoint_state(log, find_checkpoint(log, 0))
    logged = {
        name: value for a in log.commit(0).actions for name in ("protocol", "metaData") if (value := getattr(a, name))
    }

    assert (protocol, metadata) == (logged["protocol"], logged["metaData"])


def test_state_missing_from_a_checkpoint_is_none(log_builder, checkpoint_writer, log):
    log_builder.create()
    checkpoint_writer.parquet(f"{0:020d}.checkpoint.parquet", [log_builder.metadata()])

    protocol, metadata = checkpoint_state(log, find_checkpoint(log, 0))

    assert (protocol, metadata.id) == (None, log_builder.table_id)


@pytest.mark.parametrize("form", ALL_FORMS)
def test_every_form_of_checkpoint_has_transactions(log_builder, checkpoint_writer, log, form):
    log_builder.create()
    log_builder.append(4)
    checkpoint_writer.more = [{"txn": {"appId": f"app-{i}", "version": i, "lastUpdated": None}} for i in range(7)]
    write(checkpoint_writer, form)

    found = checkpoint_transactions(log, find_checkpoint(log, 1), {"app-2", "app-6", "other"})

    assert {app: txn.version for app, txn in found.items()} == {"app-2": 2, "app-6": 6}


@pytest.mark.parametrize("content", [b"PAR1", b"not Parquet at all, but long enough", b"PAR1" + bytes(64) + b"PAR1"])
def test_a_damaged_checkpoint_is_an_error_that_names_the_file(log_builder, checkpoint_writer, log, content):
    log_builder.create()
    checkpoint_writer.classic().write_bytes(content)

    with pytest.raises(TornFileError, match=r"00000000000000000000\.checkpoint\.parquet .* cannot be read") as error:
        checkpoint_state(log, find_checkpoint(log, 0))
    assert (error.value.table, error.value.version) == (log_builder.uri, 0)


@pytest.mark.parametrize("content", ['{"protocol":{"minReaderVer', '{"protocol":{"minReaderVersion":"one"}}\n'])
def test_a_damaged_json_checkpoint_is_an_error_that_names_the_file(log_builder, checkpoint_writer, log, content):
    log_builder.create()
    checkpoint_writer.v2("json").write_text(content)

    with pytest.raises(TornFileError, match=r"\.json of the checkpoint of version 0 cannot be read"):
        checkpoint_state(log, find_checkpoint(log, 0))


@pytest.mark.parametrize("form", ["classic", "v2 json"])
def test_a_checkpoint_that_cleanup_removes_while_it_is_read_means_a_truncated_log(
    log_builder, checkpoint_writer, log, form
):
    log_builder.create()
    write(checkpoint_writer, form)
    found = find_checkpoint(log, 0)
    (log_builder.root / found.keys[0]).unlink()

    with pytest.raises(LogTruncatedError, match="is missing"):
        checkpoint_state(log, found)


@pytest.mark.parametrize("hint", [None, 5])
def test_an_incomplete_checkpoint_is_named_if_the_log_has_nothing_else_to_begin_with(
    log_builder, checkpoint_writer, log, hint
):
    log_builder.with_appends(5)
    checkpoint_writer.parts(3, without=[2])
    if hint is not None:
        checkpoint_writer.hint(hint)
    log_builder.append()
    assert find_checkpoint(log, 6) is None

    log_builder.clean_up_before(4)
    for read in (lambda: log.state_at(6), lambda: list(live_rows(log, 6, ("path",)))):
        with pytest.raises(TornFileError, match=r"no commits before version 4.* of version 5 is incomplete") as caught:
            read()
        assert "of its 3 parts it lacks 2. Restore" in str(caught.value)
        assert "00000000000000000005.checkpoint.0000000002.0000000003.parquet" in str(caught.value)
