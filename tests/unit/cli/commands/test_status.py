"""``fds status``: all streams of a staging folder, whatever state each is in."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from typing import Any

import pytest

from airflow_provider_fds.cli.main import main


def fds(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def statuses(capsys: Any, staging: object, *more: object) -> tuple[int, dict[str, dict[str, Any]]]:
    code, out, _ = fds(capsys, "status", "--staging", staging, "--output", "json", *more)
    found = [json.loads(line) for line in out.splitlines()]
    return code, {one["name"]: one for one in found}


def make_older(log_builder: Any, version: int, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(log_builder.root / "_delta_log" / f"{version:020d}.json", (moment, moment))


def test_all_streams_are_listed_with_state_and_lag(staging, log_builder, capsys):
    make_older(log_builder, 1, 7260)
    code, out, err = fds(capsys, "status", "--staging", staging)
    assert (code, err) == (0, "")
    header, *rows = out.splitlines()
    assert re.split(r"\s{2,}", header) == ["STREAM", "STATE", "LAG", "OLDEST UNREAD", "RETENTION LEFT", "TABLE", "SINK"]
    uri = f"file://{log_builder.root}"
    assert [re.split(r"\s{2,}", row) for row in rows] == [
        ["newest", "up to date", "0", uri],
        ["planned", "loading", "2", "2 h 1 min", "6 days 21 h", uri],
    ]


def test_json_has_a_status_per_line_with_the_age_of_the_oldest_unread_version(staging, log_builder, capsys):
    make_older(log_builder, 1, 3600)
    code, found = statuses(capsys, staging)
    assert code == 0
    assert [one["condition"] for one in found.values()] == ["up_to_date", "loading"]
    assert (found["newest"]["lag_seconds"], found["newest"]["retention_left_seconds"]) == (0.0, None)
    assert found["planned"]["lag_seconds"] == pytest.approx(3600, abs=60)
    # delta.deletedFileRetentionDuration is a week by default, the log's retention 30 days
    assert found["planned"]["retention_left_seconds"] == pytest.approx(7 * 86_400 - 3600, abs=60)


def test_lagging_shows_what_lags_longer_and_exits_with_1(staging, log_builder, capsys):
    make_older(log_builder, 1, 3600)
    assert [*statuses(capsys, staging, "--lagging", "50m")[1]] == ["planned"]
    assert statuses(capsys, staging, "--lagging", "50m")[0] == 1
    assert statuses(capsys, staging, "--lagging", "2h") == (0, {})
    assert "none of the 2 streams" in fds(capsys, "status", "--staging", staging, "--lagging", "2h")[1]


def test_a_held_stream_is_listed_but_needs_nobody(staging, capsys):
    assert fds(capsys, "hold", "newest", "--staging", staging, "--why", "moving house")[0] == 0
    code, found = statuses(capsys, staging)
    assert (code, found["newest"]["condition"]) == (0, "held")


def test_a_stream_in_quarantine_exits_with_1(log_builder, tmp_path, capsys):
    log_builder.create()
    log_builder.commit({"remove": {"path": "a", "dataChange": True, "deletionTimestamp": 0}}, operation="DELETE")
    options = ("--option", "starting_version=1", "--option", "on_violation=quarantine")
    arguments = ("--staging", tmp_path / "s", "--stream", "x", *options)
    assert fds(capsys, "plan", log_builder.root, *arguments)[0] == 3
    code, found = statuses(capsys, tmp_path / "s")
    assert (code, found["x"]["condition"]) == (1, "quarantined")


def test_one_unreadable_ledger_does_not_hide_the_other_streams(staging, capsys):
    for entry in (staging / "newest" / "ledger").glob("*.json"):
        entry.write_bytes(b"{")
    code, found = statuses(capsys, staging)
    assert code == 1
    assert {name: one["condition"] for name, one in found.items()} == {"newest": "unreadable", "planned": "loading"}
    assert found["newest"]["problem"]
    _, out, err = fds(capsys, "status", "--staging", staging)
    assert re.search(r"^newest +unreadable\b", out, re.MULTILINE)
    assert err.startswith("newest: [")


def test_a_table_that_is_gone_or_another_one_needs_a_person(staging, log_builder, capsys):
    shutil.rmtree(log_builder.root)
    code, found = statuses(capsys, staging)
    assert (code, {one["condition"] for one in found.values()}) == (1, {"unreadable"})
    anew = type(log_builder)(log_builder.root)
    anew.table_id = "22222222-2222-3333-4444-555555555555"
    anew.create()
    anew.append(2)
    anew.append(2)
    code, found = statuses(capsys, staging)
    assert (code, {one["condition"] for one in found.values()}) == (1, {"lost_position"})


def test_folders_that_are_no_streams_are_left_out(staging, capsys):
    (staging / "not a stream").mkdir()
    (staging / "notes").mkdir()
    assert [*statuses(capsys, staging)[1]] == ["newest", "planned"]
    code, out, _ = fds(capsys, "status", "--staging", staging / "notes")
    assert (code, out) == (0, f"no streams found in {staging / 'notes'}\n")


@pytest.mark.parametrize(
    ("folders", "hint"),
    [
        ([], "Check the name and the staging folder"),
        (["order"], "Did you mean 'order'?"),
        (["order", "orders/ledger"], "Its folder has no entry: the first run ended before it wrote one"),
    ],
)
def test_a_stream_that_is_not_there_is_told_from_one_without_entries(tmp_path, capsys, folders, hint):
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    code, _, err = fds(capsys, "status", "orders", "--staging", tmp_path)
    assert (code, hint in err) == (2, True), err


@pytest.mark.parametrize("output", ["text", "json", "prometheus"])
def test_a_misspelled_staging_folder_is_not_one_without_streams(tmp_path, capsys, output):
    code, out, err = fds(capsys, "status", "--staging", tmp_path / "stagnig", "--output", output)
    assert code == 2
    assert "STREAM_NOT_FOUND" in out + err
    assert "there is no folder" in out + err


def test_prometheus_gets_a_sample_for_what_is_known_with_escaped_labels(staging, capsys, monkeypatch):
    from airflow_provider_fds.stream.monitoring import all_statuses as module

    real = module.status_of

    def odd_table(connected: Any) -> Any:
        from dataclasses import replace

        return replace(real(connected), table='a"b\\c\nd')

    monkeypatch.setattr(module, "status_of", odd_table)
    code, out, _ = fds(capsys, "status", "--staging", staging, "--output", "prometheus")
    assert code == 0
    assert 'fds_lag_versions{stream="newest",table="a\\"b\\\\c\\nd"} 0' in out.splitlines()
    assert 'fds_needs_attention{stream="planned",state="loading",table="a\\"b\\\\c\\nd"} 0' in out.splitlines()
    assert 'fds_retention_left_seconds{stream="newest"' not in out
    samples = [line for line in out.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'[a-z_]+\{(?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)+\} \d+(?:\.\d+)?', one) for one in samples)
    assert out.endswith("\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--all",), "It is now `--file FILE`; `fds status` without a STREAM shows all"),
        (("planned", "--lagging", "10m"), "--lagging is for all streams: omit the STREAM 'planned'"),
        (("planned", "--output", "prometheus"), "--output prometheus is for all streams"),
        (("--full",), "--full needs the name of a STREAM"),
        (("--watch", "--file", "f"), "--watch shows all streams of the staging folder: omit --file"),
        (("--lagging", "ten minutes"), "expected a duration such as 90s, 10m, 2h or 1d, got 'ten minutes'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(staging, capsys, arguments, said):
    code, _, err = fds(capsys, "status", *arguments, "--staging", staging)
    assert code == 2
    assert said in err


def loaded(*arguments: object) -> set[str]:
    """Return the modules of FDS that a command loads in a process of its own."""
    script = (
        "import sys; from airflow_provider_fds.cli.main import main; main(sys.argv[1:]); "
        "print(*(name for name in sys.modules if name.startswith('airflow_provider_fds.')))"
    )
    words = [sys.executable, "-c", script, *map(str, arguments)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    return {name.removeprefix("airflow_provider_fds.") for name in ran.stdout.splitlines()[-1].split()}


def test_the_help_of_status_loads_no_part_of_a_stream():
    found = loaded("status", "--help")
    assert not {name for name in found if name.partition(".")[0] in ("batch", "delta", "ledger", "source", "stream")}
    assert len(found) <= 20


def test_the_status_of_a_stream_loads_no_planner_no_job_and_no_sink(staging):
    found = loaded("status", "planned", "--staging", staging)
    assert not found & {"batch.spec", "batch.report", "source.planned", "source.changes", "sinks", "delta.vectors"}
    assert len(found) <= 125
