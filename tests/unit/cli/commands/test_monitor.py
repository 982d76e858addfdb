"""``fds monitor``: a round reads only what changed, and lines and the scrape endpoint show all streams."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.stream.connected_stream import StreamContext
from airflow_provider_fds.stream.monitoring import monitor
from airflow_provider_fds.stream.monitoring.monitor import StreamMonitor
from tests.counting_storage import count_requests


def monitor_of(staging, **kwargs):
    def context():
        return StreamContext(
            staging_uri=str(staging),
            deployment="d",
            actor=Actor(deployment="d"),
            owner=Owner.of_plan("d"),
            owner_is_running=lambda _owner: True,
        )

    return StreamMonitor(context, **kwargs)


def by_name(statuses):
    return {one.name: (one.condition, one.lag_versions, one.pending_files) for one in statuses}


def test_a_table_that_did_not_change_costs_one_head_and_no_log_is_read(staging, log_builder, monkeypatch):
    requests = count_requests(monkeypatch)
    watched = monitor_of(staging)
    first = by_name(watched.poll())
    assert first == {"newest": ("up_to_date", 0, 0), "planned": ("loading", 2, 4)}
    requests.clear()
    assert by_name(watched.poll()) == first
    table = [(one.kind, one.key) for one in requests if one.root == log_builder.uri]
    assert table == [("head", "_delta_log/00000000000000000003.json")] * 2


def test_a_full_round_reads_each_ledger_once(staging, monkeypatch):
    requests = count_requests(monkeypatch)
    monitor_of(staging).poll()
    entries = [one.key for one in requests if one.kind == "get" and "/ledger/" in one.key]
    assert entries
    # the last one is the question for a new entry
    assert len(entries) == len(set(entries))


def test_new_versions_and_new_entries_show_in_the_next_round(staging, log_builder, capsys):
    watched = monitor_of(staging)
    watched.poll()
    log_builder.append(3)
    assert by_name(watched.poll()) == {"newest": ("behind", 1, 3), "planned": ("loading", 3, 7)}
    assert main(["hold", "newest", "--staging", str(staging), "--why", "moving house"]) == 0
    assert by_name(watched.poll())["newest"] == ("held", 1, 3)


def test_streams_come_and_go(staging, log_builder, tmp_path, capsys):
    watched = monitor_of(staging)
    watched.poll()
    arguments = ("plan", log_builder.root, "--staging", staging, "--stream", "third")
    assert main([*map(str, arguments), "--option", "starting_version=latest"]) == 0
    (staging / "newest").rename(tmp_path / "away")
    assert [*by_name(watched.poll())] == ["planned", "third"]


def test_lag_grows_and_retention_shrinks_while_nothing_changes(staging, log_builder, monkeypatch):
    old = time.time() - 100
    os.utime(log_builder.root / "_delta_log" / f"{1:020d}.json", (old, old))
    watched = monitor_of(staging)
    before = {one.name: one for one in watched.poll()}
    now = time.monotonic()
    monkeypatch.setattr(monitor.time, "monotonic", lambda: now + 30)
    after = {one.name: one for one in watched.poll()}
    grown = after["planned"].lag_seconds - before["planned"].lag_seconds
    shrunk = before["planned"].retention_left_seconds - after["planned"].retention_left_seconds
    assert grown == pytest.approx(30, abs=5)
    assert shrunk == pytest.approx(30, abs=5)
    assert (after["newest"].lag_seconds, after["newest"].retention_left_seconds) == (0.0, None)


def test_a_table_that_was_deleted_shows_in_the_next_full_round(staging, log_builder, tmp_path):
    watched = monitor_of(staging, recheck_every=3)
    watched.poll()
    log_builder.root.rename(tmp_path / "away")
    assert {one.condition for one in watched.poll()} == {"up_to_date", "loading"}
    watched.poll()
    assert {one.condition for one in watched.poll()} == {"unreadable"}
    (tmp_path / "away").rename(log_builder.root)
    assert {one.condition for one in watched.poll()} == {"up_to_date", "loading"}


def test_an_unreadable_ledger_hides_no_other_stream_and_is_tried_again(staging):
    entries = {entry: entry.read_bytes() for entry in (staging / "newest" / "ledger").glob("*.json")}
    for entry in entries:
        entry.write_bytes(b"{")
    watched = monitor_of(staging)
    assert {one.name: one.condition for one in watched.poll()} == {"newest": "unreadable", "planned": "loading"}
    for entry, data in entries.items():
        entry.write_bytes(data)
    assert {one.name: one.condition for one in watched.poll()} == {"newest": "up_to_date", "planned": "loading"}


@contextmanager
def running(*arguments):
    command = [sys.executable, "-m", "airflow_provider_fds.cli.main", "monitor", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            # not SIGINT: a process that was started in the background of a shell ignores it, and so do its children
            process.terminate()
            process.communicate(timeout=30)


def test_lines_tell_what_changed(staging, log_builder):
    with running("--staging", staging, "--poll-interval", "1s", "--output", "json") as process:
        first = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [(one["name"], one["lag_versions"]) for one in first] == [("newest", 0), ("planned", 2)]
        log_builder.append(1)
        later = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [(one["name"], one["lag_versions"]) for one in later] == [("newest", 1), ("planned", 3)]
    assert process.returncode == -signal.SIGTERM


def test_text_is_one_line_a_stream(staging):
    with running("--staging", staging) as process:
        lines = [process.stdout.readline() for _ in range(2)]
    assert re.fullmatch(r"\S+Z newest: up to date\n", lines[0])
    assert re.fullmatch(
        r"\S+Z planned: loading, 2 versions to read, the oldest .* old, 4 files of .* bytes\n", lines[1]
    )


def get(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def scraped(url):
    """The answer after the first round; 503 before that."""
    for _ in range(600):
        try:
            return get(url)
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(0.05)
    raise TimeoutError(url)


def test_prometheus_scrapes_the_same_names_as_status(staging, capsys):
    with running("--staging", staging, "--output", "prometheus", "--listen", "127.0.0.1:0") as process:
        url = re.search(r"http://127\.0\.0\.1:\d+/metrics", process.stderr.readline())[0]
        kind, text = scraped(url)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(url.replace("/metrics", "/"))
    assert kind.startswith("text/plain; version=0.0.4")
    assert main(["status", "--staging", str(staging), "--output", "prometheus"]) == 0
    names = {line.split("{")[0] for line in capsys.readouterr().out.splitlines() if not line.startswith("#")}
    assert {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")} == names
    assert 'fds_pending_files{stream="planned"' in text


def test_a_round_that_fails_serves_no_old_values_and_the_next_one_follows(staging, monkeypatch, capsys):
    rounds = []

    def poll(_self):
        rounds.append(None)
        if len(rounds) == 2:
            raise KeyboardInterrupt
        raise StorageError("the store is away", table="t")

    monkeypatch.setattr(StreamMonitor, "poll", poll)
    monkeypatch.setattr("airflow_provider_fds.cli.commands.monitor.time.sleep", lambda _seconds: None)
    assert main(["monitor", "--staging", str(staging), "--output", "prometheus", "--listen", "127.0.0.1:0"]) == 0
    assert "this round failed: the store is away" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--poll-interval", "soon"), "expected a duration such as 90s"),
        (("--poll-interval", "0s"), "--poll-interval must be at least 1s"),
        (("--listen", "127.0.0.1:1"), "--listen needs --output prometheus"),
        (("--output", "prometheus", "--listen", "9184"), "--listen must be HOST:PORT, such as 127.0.0.1:9184"),
        (("--output", "prometheus", "--listen", "127.0.0.1:99999"), "cannot listen on 127.0.0.1:99999"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(staging, capsys, arguments, said):
    assert main(["monitor", "--staging", str(staging), *arguments]) == 2
    assert said in capsys.readouterr().err
