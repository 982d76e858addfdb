"""The checker stays independent: it knows commands, operators and tables, and nothing of how the package works."""

from __future__ import annotations

import ast
from pathlib import Path

import airflow_provider_fds

HERE = Path(__file__).parent


def imports(text: str) -> set[str]:
    """Return what a file imports, ``module`` or ``module:name``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}:{alias.name}" for alias in node.names)
    return found


def test_only_public_names_of_the_package_are_imported_where_a_dag_would():
    public = {"airflow_provider_fds", *(f"airflow_provider_fds:{name}" for name in airflow_provider_fds.__all__)}
    for path in HERE.glob("*.py"):
        mine = {name for name in imports(path.read_text()) if name.startswith("airflow_provider_fds")}
        assert mine <= public, f"{path.name} imports {mine - public}"


def test_the_dags_of_scenarios_import_public_names_alone():
    from tests.adversary.airflow_host import DAG_TEXT

    text = DAG_TEXT.format(name="n", table="t", staging="s", options="", dag_id="d", schedule="None", task="pass")
    mine = {name for name in imports(text) if "fds" in name}
    assert mine
    assert mine <= {f"airflow_provider_fds:{name}" for name in airflow_provider_fds.__all__}


def test_nothing_of_the_other_tests_and_no_fault_point_is_used():
    for path in HERE.glob("*.py"):
        text = path.read_text()
        others = {name for name in imports(text) if name.startswith("tests")}
        assert all(name.startswith("tests.adversary") for name in others), f"{path.name} imports {others}"
        if path != Path(__file__):
            assert "fault_points" not in text
            assert "FDS_TEST_FAULT" not in text
