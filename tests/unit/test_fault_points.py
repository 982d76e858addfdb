"""Fault points: each is somewhere in the code, does what is asked, and nothing unless it is asked."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import airflow_provider_fds
from airflow_provider_fds.fault_points import (
    ASKED_BY,
    ASKED_LATER,
    CHECKPOINTED_KINDS,
    ENTRY_KINDS,
    MARKS_IN,
    POINTS,
    Fault,
)

PACKAGE = Path(airflow_provider_fds.__file__).parent
REACH = "from airflow_provider_fds.fault_points import reach; [reach('ledger.read') for _ in range(3)]; print('on')"


def reaching(asked: str | None, marks: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, MARKS_IN: str(marks)}
    environment.pop(ASKED_BY, None)
    if asked is not None:
        environment[ASKED_BY] = asked
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); {REACH}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)


def test_every_point_is_in_the_code_and_every_point_in_the_code_has_a_name():
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for name, kind in re.findall(r'\breach\("([a-z.]+)"(, )?', path.read_text(encoding="utf-8")):
            kinds = CHECKPOINTED_KINDS if name.startswith("checkpoint") else ENTRY_KINDS
            found |= {f"{name}.{entry}" for entry in kinds} if kind else {name}
    assert found == set(POINTS)


def test_no_fault_happens_without_a_request(tmp_path):
    ran = reaching(None, tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "on\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("asked", ["kill@ledger.read", "kill@ledger.read#3", "note@job.after,kill-group@ledger.read"])
def test_a_killed_process_leaves_a_mark_and_prints_nothing_more(tmp_path, asked):
    environment = {**os.environ, ASKED_BY: asked, MARKS_IN: str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", REACH],
        capture_output=True, text=True, check=False, env=environment, start_new_session=True, timeout=60,
        cwd=PACKAGE.parent,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (-signal.SIGKILL, "")
    assert "is meant to fail" in ran.stderr
    (mark,) = tmp_path.iterdir()
    assert mark.name in asked.split(",")
    assert mark.read_text().isdecimal()


def test_a_stopped_process_continues_when_it_is_continued_and_does_not_stop_again(tmp_path):
    environment = {**os.environ, ASKED_BY: "stop@ledger.read", MARKS_IN: str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", REACH],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, cwd=PACKAGE.parent,
    )  # fmt: skip
    assert os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT).si_code == os.CLD_STOPPED
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=60)[0] == "on\n"
    assert process.returncode == 0


def test_a_fault_hits_one_process_of_several_that_inherit_it(tmp_path):
    assert [reaching("kill@ledger.read", tmp_path).returncode for _ in range(2)] == [-signal.SIGKILL, 0]


def test_processes_that_start_later_can_have_another_fault(tmp_path):
    assert reaching(ASKED_LATER, tmp_path).returncode == 0
    (tmp_path / ASKED_LATER).write_text("kill@ledger.read#2")
    assert reaching(ASKED_LATER, tmp_path).returncode == -signal.SIGKILL
    (tmp_path / ASKED_LATER).write_text("")
    assert reaching(ASKED_LATER, tmp_path).stderr == ""


def test_a_count_that_is_not_reached_does_nothing(tmp_path):
    assert reaching("kill@ledger.read#4", tmp_path).returncode == 0


@pytest.mark.parametrize(
    "text", ["kill", "kill@nowhere", "burn@ledger.read", "kill@ledger.read#0", "kill@ledger.read "]
)
def test_an_invalid_fault_is_refused(text):
    with pytest.raises(ValueError, match="is not effect@point"):
        Fault.parse(text)


def test_a_fault_reads_as_it_is_written():
    for text in ("kill@ledger.read", "stop@entry.before.planned#2"):
        assert str(Fault.parse(text)) == text
