from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.source.offset import Offset


def fds(capsys: Any, *arguments: object) -> tuple[int, list[dict[str, Any]], str]:
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    rows = [json.loads(line) for line in captured.out.splitlines() if line.startswith("{")]
    return code, rows, captured.out + captured.err


@pytest.fixture
def table(log_builder):
    log_builder.create()
    for files in (2, 3, 1):
        log_builder.append(files)
    return log_builder


def test_a_dry_run_prints_the_batches_and_writes_nothing(table, capsys, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    code, rows, _ = fds(
        capsys, "plan", table.root, "--dry-run", "--option", "starting_version=0",
        "--option", "max_files_per_batch=2", "--output", "json",
    )  # fmt: skip

    assert code == 0
    assert [row["num_files"] for row in rows[:-1]] == [2, 2, 2]
    assert rows[-1] == {"status": "up_to_date", "error": None}
    assert set(rows[0]) == {
        "batch_id", "start", "end", "first_version", "last_version", "num_files", "num_bytes", "num_rows", "manifest",
        "skipped",
    }  # fmt: skip
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_of_a_snapshot_needs_no_staging_either(table, capsys, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    code, rows, _ = fds(capsys, "plan", table.root, "--dry-run", "--output", "json")

    assert code == 0
    assert rows[0]["num_files"] == 6
    assert rows[0]["start"]["isStartingVersion"] is True
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_of_a_snapshot_names_the_temporary_folder_that_it_cannot_use(table, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "lost"))
    code, _, error = fds(capsys, "plan", table.root, "--dry-run", "--output", "json")
    assert (code, f"cannot write to the temporary folder {tmp_path}/lost" in error) == (5, True), error


def test_planning_twice_prints_the_same_uncommitted_batches(table, capsys, tmp_path):
    arguments = ("plan", table.root, "--staging", tmp_path / "s", "--stream", "x", "--option", "starting_version=0",
                 "--output", "json")  # fmt: skip
    first = fds(capsys, *arguments)
    table.append(1)
    second = fds(capsys, *arguments)

    assert first[0] == second[0] == 0
    assert first[1][:-1] == second[1][:-1]
    manifest = first[1][0]["manifest"].removeprefix("file://")
    assert (tmp_path / manifest / "_delta_log" / "00000000000000000000.json").exists()


def test_max_batches_stops_with_more(table, capsys, tmp_path):
    code, rows, _ = fds(
        capsys, "plan", table.root, "--staging", tmp_path / "s", "--stream", "x",
        "--option", "starting_version=0", "--option", "max_versions_per_batch=1",
        "--max-batches", "1", "--output", "json",
    )  # fmt: skip

    assert code == 0
    assert len(rows) == 2
    assert rows[-1]["status"] == "more"


def test_a_plan_starts_at_a_given_offset(table, capsys, tmp_path):
    offset = {
        "sourceVersion": 1,
        "reservoirId": table.table_id,
        "reservoirVersion": 2,
        "index": 0,
        "isStartingVersion": False,
    }
    for extra in (("--dry-run",), ("--staging", tmp_path / "s", "--stream", "x")):
        code, rows, text = fds(capsys, "plan", table.root, *extra, "--from", json.dumps(offset), "--output", "json")
        assert code == 0, text
        assert rows[0]["start"] == offset
        assert rows[0]["num_files"] == 3


def test_a_bad_version_stops_with_code_3_after_the_good_prefix(table, capsys):
    table.commit(table.remove("part-00001-00000.parquet"), operation="DELETE")
    code, rows, _ = fds(capsys, "plan", table.root, "--dry-run", "--option", "starting_version=0", "--output", "json")

    assert code == 3
    assert rows[0]["last_version"] == 3
    error = rows[-1]["error"]
    assert rows[-1]["status"] == "stopped"
    assert (error["type"], error["version"], error["table"]) == ("ViolationError", 4, table.uri)


def test_a_lost_position_is_code_4(table, capsys):
    offset = {
        "sourceVersion": 1,
        "reservoirId": table.table_id,
        "reservoirVersion": 1,
        "index": -1,
        "isStartingVersion": False,
    }
    for version in (0, 1):
        (table.log / f"{version:020d}.json").unlink()
    code, rows, text = fds(capsys, "plan", table.root, "--dry-run", "--from", json.dumps(offset), "--output", "json")

    assert code == 4, text
    assert rows[-1]["error"]["type"] == "LogTruncatedError"


def test_a_hole_in_the_log_is_code_4_and_names_the_version(table, capsys):
    (table.log / f"{2:020d}.json").unlink()
    code, rows, text = fds(
        capsys, "plan", table.root, "--dry-run", "--option", "starting_version=0", "--output", "json"
    )

    assert code == 4, text
    assert (rows[-1]["error"]["type"], rows[-1]["error"]["version"]) == ("LogGapError", 2)


@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_commit_file_is_code_5_and_named(table, capsys, content):
    (table.log / f"{2:020d}.json").write_text(content)
    code, rows, text = fds(
        capsys, "plan", table.root, "--dry-run", "--option", "starting_version=0", "--output", "json"
    )

    assert code == 5, text
    assert rows[-1]["error"]["type"] == "TornFileError"


def test_a_feature_that_cannot_be_read_is_named(log_builder, capsys):
    log_builder.create(
        protocol={
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["catalogManaged"],
            "writerFeatures": [],
        }
    )
    code, _, text = fds(capsys, "plan", log_builder.root, "--dry-run")

    assert code == 2
    assert "catalogManaged" in text


def test_a_dry_run_begins_after_a_feature_that_was_dropped_as_a_run_does(log_builder, capsys, tmp_path):
    log_builder.create()
    future = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["future"], "writerFeatures": ["future"]}
    log_builder.commit({"protocol": future}, operation="ADD FEATURE")
    log_builder.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, operation="DROP FEATURE")
    log_builder.append(1)

    dry = fds(capsys, "plan", log_builder.root, "--dry-run", "--option", "starting_version=2")
    real = fds(
        capsys, "plan", log_builder.root, "--staging", tmp_path / "s", "--stream", "x", "--option", "starting_version=2"
    )

    assert dry == real
    assert dry[0] == 0


def test_a_dry_run_from_an_offset_shows_what_comes_before_a_commit_that_cannot_be_read(log_builder, capsys):
    log_builder.with_appends(2)
    future = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["future"], "writerFeatures": ["future"]}
    log_builder.commit({"protocol": future}, operation="ADD FEATURE")
    offset = Offset(log_builder.table_id, 1).to_json()

    code, _, text = fds(capsys, "plan", log_builder.root, "--dry-run", "--from", offset)

    assert code == 2
    assert "2 files" in text
    assert "version 3" in text


def test_a_table_with_another_id_is_code_4(table, capsys, tmp_path):
    arguments = (
        "plan",
        table.root,
        "--staging",
        tmp_path / "s",
        "--stream",
        "x",
        "--option",
        "starting_version=latest",
    )
    assert fds(capsys, *arguments)[0] == 0
    first = table.log / f"{0:020d}.json"
    first.write_text(first.read_text().replace(table.table_id, "22222222-0000-0000-0000-000000000000"))
    table.append(1)
    code, _, text = fds(capsys, *arguments)

    assert code == 4, text
    assert table.table_id in text


def test_a_torn_commit_is_code_5(table, capsys):
    (table.log / f"{2:020d}.json").write_text('{"add":')
    code, rows, text = fds(
        capsys, "plan", table.root, "--dry-run", "--option", "starting_version=0", "--output", "json"
    )

    assert code == 5, text
    assert rows[-1]["error"]["version"] == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--option", "starting_version=99"), "newest version of the table is 3"),
        (("--option", "starting_version=1", "--option", "starting_timestamp=2026-01-01"), "cannot be combined"),
        (("--option", "starting_timestamp=last tuesday"), "last tuesday"),
        (("--option", "maxFilesPerTriger=3"), "maxFilesPerTrigger"),
        (("--option", "nonsense"), "KEY=VALUE"),
        (("--from", "here"), "not an offset"),
        (("--max-batches", "0"), "1 or more"),
    ],
)
def test_bad_arguments_exit_with_2_and_a_reason(table, capsys, arguments, expected):
    code, _, text = fds(capsys, "plan", table.root, "--dry-run", *arguments)

    assert code == 2
    assert expected in text


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda root: root / "nothing", "nothing"),
        (lambda root: (root / "plain").mkdir() or root / "plain", "_delta_log"),
        (lambda _: "s4://bucket/x", "did you mean s3://"),
        (lambda root: (root / "empty" / "_delta_log").mkdir(parents=True) or root / "empty", "empty"),
    ],
)
def test_a_folder_that_is_not_a_table_exits_with_2_and_is_named(tmp_path, capsys, make, expected):
    table = make(tmp_path)
    code, _, text = fds(capsys, "plan", table, "--dry-run")

    assert code == 2
    assert str(table).rsplit("/", maxsplit=1)[-1] in text
    assert expected in text.lower() or expected in text


def test_planning_needs_staging_or_a_dry_run(table, capsys, tmp_path):
    assert "--staging DIR" in fds(capsys, "plan", table.root)[2]


def test_a_dry_run_with_staging_shows_the_stream_of_any_installation_and_writes_nothing(table, capsys, tmp_path):
    options = ("--option", "starting_version=0", "--option", "max_versions_per_batch=1", "--output", "json")
    arguments = ("plan", table.root, "--staging", tmp_path / "s", "--stream", "x", *options)
    assert fds(capsys, *arguments, "--deployment", "prod", "--max-batches", "1")[0] == 0
    before = sorted((tmp_path / "s").rglob("*"))

    code, _, text = fds(capsys, *arguments)
    assert code == 2
    assert "`fds status x`" in text
    assert text.index("--dry-run") < text.index("fds transfer")

    code, rows, text = fds(capsys, *arguments, "--dry-run")
    assert code == 0, text
    assert [(row["batch_id"], row["last_version"]) for row in rows[:-1]] == [(0, 1), (1, 2), (2, 3)]
    assert fds(capsys, *arguments, "--dry-run", "--max-batches", "1")[1][-1]["status"] == "more"
    assert sorted((tmp_path / "s").rglob("*")) == before


def test_a_dry_run_reads_from_the_stream_or_from_an_offset(table, capsys, tmp_path):
    code, _, text = fds(capsys, "plan", table.root, "--dry-run", "--staging", tmp_path, "--from", "{}")
    assert code == 2
    assert "--from and --staging" in text


@pytest.mark.parametrize("how", [(), ("--dry-run",)])
def test_options_that_are_changed_while_a_batch_is_planned_say_when_they_take_effect(table, capsys, tmp_path, how):
    arguments = ("plan", table.root, "--staging", tmp_path / "s", "--stream", "x", "--output", "json", "--option",
                 "starting_version=0")  # fmt: skip
    assert "warnings" not in fds(capsys, *arguments)[1][-1]
    _, rows, _ = fds(capsys, *arguments, "--option", "max_files_per_batch=1", *how)
    assert rows[0]["num_files"] == 6
    (note,) = rows[-1]["warnings"]
    assert "options of stream 'x' have changed since batch 0 was planned. They take effect after batch 0" in note
    assert "`fds replan x --why" in note


def test_a_staging_that_cannot_be_written_is_code_5(table, capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, _, text = fds(
        capsys, "plan", table.root, "--staging", tmp_path / "file", "--stream", "x", "--option", "starting_version=0"
    )

    assert code == 5
    assert "the staging" in text
    assert "cannot be" in text


def test_a_repeated_plan_sees_what_came_after_its_batches(table, capsys, tmp_path):
    place = ("--staging", tmp_path / "s", "--stream", "x")
    arguments = ("plan", table.root, *place, "--option", "starting_version=0", "--output", "json")
    assert fds(capsys, *arguments)[1][-1]["status"] == "up_to_date"
    table.append(1)
    code, rows, _ = fds(capsys, *arguments)
    assert (code, rows[-1]["status"]) == (0, "more")
    table.commit(operation="OPTIMIZE")


def test_a_repeated_plan_still_reports_what_stops_it(table, capsys, tmp_path):
    place = ("--staging", tmp_path / "s", "--stream", "x")
    arguments = ("plan", table.root, *place, "--option", "starting_version=0", "--output", "json")
    table.commit(table.remove("part-00001-00000.parquet"), operation="DELETE")
    for _ in range(2):
        code, rows, _ = fds(capsys, *arguments)
        assert (code, rows[-1]["status"], rows[-1]["error"]["version"]) == (3, "stopped", 4)


def test_26_planning_ends_at_the_end_of_the_stream_and_after_it_says_that_it_is_finished(table, capsys, tmp_path):
    arguments = ("plan", table.root, "--option", "starting_version=0", "--option", "ending_version=2")
    code, rows, _ = fds(capsys, *arguments, "--dry-run", "--output", "json")
    assert code == 0
    assert [row["last_version"] for row in rows[:-1]] == [2]
    assert rows[-1]["status"] == "up_to_date"

    code, written, _ = fds(capsys, *arguments, "--staging", tmp_path / "s", "--stream", "x", "--output", "json")
    assert [row["last_version"] for row in written[:-1]] == [2]
    assert written[-1]["status"] == "up_to_date"

    behind = json.dumps(rows[0]["end"])
    for output in ("json", "text"):
        code, end, text = fds(capsys, *arguments, "--dry-run", "--from", behind, "--output", output)
        assert code == 0
        assert [row["status"] for row in end] == (["finished"] if output == "json" else [])
    assert "is finished: ending_version=2" in text


def test_a_bounded_read_is_planned_alone(table, capsys, tmp_path):
    arguments = ("plan", table.root, "--option", "version_as_of=2", "--option", "max_files_per_batch=3")
    code, rows, _ = fds(capsys, *arguments, "--dry-run", "--output", "json")
    assert code == 0
    assert [row["num_files"] for row in rows[:-1]] == [3, 2]
    code, written, _ = fds(capsys, *arguments, "--staging", tmp_path / "s", "--stream", "x", "--output", "json")
    assert [row["num_files"] for row in written[:-1]] == [3, 2]
    code, _, text = fds(capsys, *arguments, "--dry-run", "--from", json.dumps(rows[0]["end"]))
    assert code == 2
    assert "--from and version_as_of" in text


def test_a_commit_that_replaces_rows_is_shown_whole_as_no_sink_is_known(log_builder, capsys):
    log_builder.create(configuration={"delta.enableChangeDataFeed": "true"})
    log_builder.append(1)
    new = [log_builder.add(f"new-{n}") for n in range(2)]
    log_builder.commit(*new, log_builder.remove("part-00001-00000.parquet"), operation="WRITE")
    options = ("starting_version=1", "read_change_feed=true", "max_files_per_batch=2")

    def files(*options: str) -> list[int]:
        given = [text for option in options for text in ("--option", option)]
        rows = fds(capsys, "plan", log_builder.root, "--dry-run", "--output", "json", *given)[1]
        return [row["num_files"] for row in rows[:-1]]

    assert files(*options) == [1, 3]
    assert files(*options, "whole_commits=false") == [1, 2, 1]


ESTIMATE_FIELDS = {
    "first_version", "last_version", "num_files", "num_bytes", "num_rows", "batches", "applications", "seconds",
}  # fmt: skip


def test_an_estimate_prints_the_totals_of_everything_that_is_left(table, capsys, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    arguments = (
        "plan",
        table.root,
        "--estimate",
        "--option",
        "starting_version=0",
        "--option",
        "max_files_per_batch=2",
    )

    code, rows, _ = fds(capsys, *arguments, "--batches-per-application", "2", "--output", "json")

    assert code == 0
    assert set(rows[0]) == ESTIMATE_FIELDS
    assert rows == [
        {"first_version": 0, "last_version": 3, "num_files": 6, "num_bytes": 6000, "num_rows": 60, "batches": 3,
         "applications": 2, "seconds": None},
        {"status": "up_to_date", "error": None},
    ]  # fmt: skip
    code, _, text = fds(capsys, *arguments)
    assert text.splitlines() == [
        "versions     0 to 3", "files        6", "bytes        6,000", "rows         60", "batches      3",
        "applications 1", "seconds      unknown", "up to date",
    ]  # fmt: skip
    assert sorted(tmp_path.rglob("*")) == before


def test_an_estimate_of_a_stream_is_from_its_position_and_writes_nothing(table, capsys, tmp_path):
    options = ("--staging", tmp_path / "s", "--stream", "x", "--option", "starting_version=0")
    new = fds(capsys, "plan", table.root, "--estimate", *options, "--output", "json")
    assert not (tmp_path / "s").exists()
    # a batch that is planned is still left to load
    assert fds(capsys, "plan", table.root, *options, "--option", "max_versions_per_batch=2", "--max-batches", 1)[0] == 0
    table.append(4, stats=None)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*")}

    code, rows, text = fds(capsys, "plan", table.root, "--estimate", *options, "--output", "json")

    assert code == 0, text
    assert new[1][0]["num_files"] == 6
    assert rows[0]["batches"] == 2
    assert (rows[0]["num_files"], rows[0]["num_rows"], rows[0]["last_version"]) == (10, None, 4)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*")} == before
    assert fds(capsys, "plan", table.root, "--estimate", *options)[2].count("unknown") == 2


def test_an_estimate_ends_at_a_version_that_the_stream_may_not_pass(table, capsys):
    table.commit(table.remove("part-00001-00000.parquet"), operation="DELETE")
    code, rows, _ = fds(capsys, "plan", table.root, "--estimate", "--option", "starting_version=0", "--output", "json")
    assert code == 3
    assert rows[0]["num_files"] == 6
    assert rows[1]["status"] == "stopped"


def test_an_estimate_of_nothing(table, capsys):
    code, _, text = fds(capsys, "plan", table.root, "--estimate", "--option", "starting_version=latest")
    assert code == 0, text
    assert "versions     none" in text
    assert "seconds      0" in text
    assert "nothing new" in text


def test_an_estimate_refuses_arguments_without_effect(table, capsys):
    arguments = ("--estimate", "--max-batches", 3, "--batches-per-application", 0)
    code, _, text = fds(capsys, "plan", table.root, *arguments)
    assert code == 2
    assert "--estimate and --max-batches cannot be combined" in text
    assert "--batches-per-application must be 1 or more" in text
