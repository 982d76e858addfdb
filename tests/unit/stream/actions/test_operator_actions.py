"""The list of operator actions: what is made from it, and what it promises of ``ActionBuilder``."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from airflow_provider_fds.cli.main import parser
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.operator_actions import ACTIONS
from airflow_provider_fds.stream.actions.recovery_survey import survey

PAGE = Path(__file__).parents[4] / "docs" / "cli.md"
#: Arguments that change how an action is worked out, not what it is.
OF_ALL = {"replace", "force"}


@pytest.mark.parametrize("action", [a for a in ACTIONS.values() if a.needs_ledger], ids=lambda action: action.name)
def test_an_action_is_a_method_with_its_arguments(action):
    method = inspect.signature(getattr(ActionBuilder, action.name))

    assert {a.name for a in action.arguments} - OF_ALL == set(method.parameters) - {"self"}


def test_recover_is_a_survey_with_its_arguments():
    surveyed = inspect.signature(survey)

    assert {a.name for a in ACTIONS["recover"].arguments} - {"airflow"} <= set(surveyed.parameters)


def test_an_argument_about_the_local_machine_is_not_a_field_of_a_form():
    # the operator itself needs Airflow; its tests trigger the DAG that is made from the form
    assert [a.name for a in ACTIONS["recover"].arguments if not a.is_cli_only] == ["sink_uri", "table"]
    assert ACTIONS["recover"].parse({"sink_uri": "s3://lake/sink", "table": "", "sink_rows": None}) == {
        "sink_uri": "s3://lake/sink"
    }
    with pytest.raises(ConfigurationError, match="sink_rows has no meaning for recover"):
        ACTIONS["recover"].parse({"sink_rows": "keep"})


@pytest.mark.parametrize("action", ACTIONS.values(), ids=lambda action: action.name)
def test_an_action_is_a_command_with_its_arguments_and_is_on_the_page(action, capsys):
    with pytest.raises(SystemExit):
        parser().parse_args([action.name, "--help"])
    text = capsys.readouterr().out

    spellings = [argument.spelling or argument.name for argument in action.arguments]
    assert all("--" + spelling.replace("_", "-") in text for spelling in spellings)
    assert f"fds {action.name} STREAM" in PAGE.read_text()


def test_all_problems_of_the_arguments_are_one_error():
    with pytest.raises(ConfigurationError) as refused:
        ACTIONS["skip"].parse({"to": "batch:3", "version": "x", "sink_rows": "burn"})

    text = str(refused.value)
    assert "to has no meaning for skip." in text
    assert "version must be a version or several (3-7), got 'x'." in text
    assert "sink_rows must be keep or delete or empty, got 'burn'." in text


def test_an_empty_form_field_counts_as_not_given():
    sent = {
        "version": "3-7",
        "to": "",
        "sink_rows": "None",
        "force_sink": False,
        "force": "no",
    }

    assert ACTIONS["skip"].parse(sent) == {"version": (3, 7)}
    with pytest.raises(ConfigurationError, match="version is needed for skip"):
        ACTIONS["skip"].parse({"version": None})


def test_an_answer_of_no_counts_as_given():
    assert ACTIONS["replan"].parse({"landed": "no"}) == {"landed": False}
    assert ACTIONS["replan"].parse({"landed": "kept=yes,gone=no"}) == {"landed": {"kept": True, "gone": False}}
