"""The short profile of the tests keeps one real run of each kind, and leaves out nothing that does not exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from airflow_provider_fds import sinks
from airflow_provider_fds.backends.registry import BACKENDS
from tests.profiles import is_listed, listed, of_profile

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import run_tests  # noqa: E402  # a script, not part of the package

sys.path.pop(0)

#: Kind -> the real run of it that `make test` makes.
KEPT = {
    kind.strip(): test.strip()
    for kind, found, test in (line.partition(" = ") for line in (ROOT / "tests" / "kept.txt").read_text().splitlines())
    if found and not kind.startswith("#")
}


def functions(path: str) -> set[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return set(re.findall(r"^(?:\s*(?:async )?def )?(test_\w+)(?:\(| = )", text, re.MULTILINE))


def exists(node_id: str) -> bool:
    path, _, name = node_id.partition("::")
    if not (ROOT / path).is_file():
        return False
    return not name or name.partition("[")[0].rpartition("::")[2] in functions(path)


@pytest.mark.parametrize("kind", KEPT)
def test_one_real_run_of_each_kind_stays_in_the_short_profile(kind):
    test = KEPT[kind]
    assert exists(test), test
    assert of_profile("short", [test]) == [True]


def test_each_sink_has_a_real_run():
    classes = {name for name in sinks.__all__ if name.endswith("Sink") and name not in ("Sink", "DeltaSink")}
    assert classes == {kind.removeprefix("sink: ") for kind in KEPT if kind.startswith("sink: ")}


def test_each_backend_has_a_real_run():
    assert set(BACKENDS) == {"spark", "spark_connect"}, "a new backend needs a line in KEPT"


@pytest.mark.parametrize("name", ["extended", "nightly"])
def test_every_test_that_a_profile_leaves_out_exists(name):
    tests = listed(name)
    assert list(tests) == sorted(set(tests))
    assert [test for test in tests if not exists(test)] == []


def test_each_test_is_in_the_short_profile_or_in_one_of_the_lists():
    assert set(listed("extended")) & set(listed("nightly")) == set()
    tests = [*KEPT.values(), *listed("extended"), *listed("nightly")]
    runs = [of_profile(profile, tests) for profile in ("short", "extended", "nightly")]
    assert [sum(of_test) for of_test in zip(*runs, strict=True)] == [1] * len(tests)
    assert of_profile("all", tests) == [not is_nightly for is_nightly in runs[2]]


@pytest.mark.parametrize(
    ("node_id", "expected"),
    [
        ("tests/a.py::test_x", True),
        ("tests/a.py::test_x[1]", True),
        ("tests/a.py::test_x_too", False),
        ("tests/b.py::test_y[1]", True),
        ("tests/b.py::test_y[2]", False),
        ("tests/c.py::test_z", True),
        ("tests/cc.py::test_z", False),
    ],
)
def test_a_listed_test_is_left_out_with_its_parameters_and_a_listed_file_with_its_tests(node_id, expected):
    assert is_listed(node_id, ("tests/a.py::test_x", "tests/b.py::test_y[1]", "tests/c.py")) is expected


@pytest.mark.parametrize("profile", ["short", "extended"])
def test_a_command_that_is_no_suite_runs_its_tests_whole(profile, monkeypatch, tmp_path):
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    part = run_tests.Part("site", command=("sh", "-c", 'test -z "$FDS_PROFILE"'))
    assert run_tests.Runner(profile).run(part).code == 0


def test_each_run_leaves_the_times_of_its_tests_and_the_modules_that_it_compiled(monkeypatch, tmp_path):
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "test_one.py").write_text("import sys\ndef test_one(): assert not sys.dont_write_bytecode\n")
    part = run_tests.Part("a/b:c", (str(tmp_path / "test_one.py"),))
    assert run_tests.Runner("").run(part).code == 0, part.log.read_text()
    assert 'name="test_one"' in (tmp_path / "a-b-c.all.xml").read_text()
