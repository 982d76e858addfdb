"""That nothing is left running is a promise of the demo; these are the ways in which processes get away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager, suppress

import airflow_stack
import psutil
import pytest

#: Says that it is ready, then does not go away on SIGTERM.
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(99)"
)


@contextmanager
def process(**options):
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, **options) as started:
        try:
            assert started.stdout.readline() == b"ready\n"
            yield started
        finally:
            with suppress(ProcessLookupError):
                started.kill()


def session_note(home, mark, session, since):
    folder = home / "processes"
    folder.mkdir()
    (folder / f"{session}.session").write_text(json.dumps({"mark": mark, "session": session, "since": since}))


def test_a_process_of_a_session_is_ended_even_if_it_ignores_term_and_others_are_left_alone():
    with process(start_new_session=True) as leader, process() as bystander:
        airflow_stack.end_processes("no such mark", [leader.pid], grace_seconds=0)

        assert leader.wait(10) == -9
        assert bystander.poll() is None


def test_a_process_that_opened_a_session_of_its_own_is_found_by_its_mark():
    with process(start_new_session=True, env={**os.environ, airflow_stack.MARK: "a mark"}) as runaway:
        assert [found.pid for found in airflow_stack.stack_processes("a mark", [])] == [runaway.pid]
        assert airflow_stack.stack_processes("another mark", []) == []


def test_the_demo_ends_processes_that_a_killed_one_left_running(tmp_path):
    with process(start_new_session=True) as left:
        session_note(tmp_path, "no such mark", left.pid, psutil.Process(left.pid).create_time())

        airflow_stack.end_leftovers(tmp_path)

        assert left.wait(10) == -9


def test_a_process_that_got_the_number_of_an_old_session_is_left_alone(tmp_path):
    with process(start_new_session=True) as stranger:
        session_note(tmp_path, "no such mark", stranger.pid, psutil.Process(stranger.pid).create_time() - 60)

        airflow_stack.end_leftovers(tmp_path)

        assert stranger.poll() is None


def test_a_home_without_notes_has_no_leftovers(tmp_path):
    airflow_stack.end_leftovers(tmp_path)


def test_a_stack_that_cannot_start_shows_the_output_of_the_process_and_leaves_nothing(tmp_path):
    env = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "nonsense://"}

    with (
        pytest.raises(airflow_stack.StackError, match=r"db migrate failed:\n(.|\n)*nonsense"),
        airflow_stack.AirflowStack(tmp_path, tmp_path, env=env),
    ):
        pytest.fail("it started")


def test_the_log_of_a_task_is_shown_as_people_read_it(tmp_path):
    log = tmp_path / "attempt=1.log"
    error = {"exc_type": "FdsError", "exc_value": "no table"}
    lines = [
        {"timestamp": "2026-11-20T12:00:01.5Z", "level": "error", "event": "failed", "error_detail": [error]},
    ]
    log.write_text("plain\n" + "\n".join(json.dumps(line) for line in lines))

    assert airflow_stack.readable_log(log) == "plain\n12:00:01 error: failed\n    FdsError: no table"
    assert "no log at" in airflow_stack.readable_log(tmp_path / "missing.log")
