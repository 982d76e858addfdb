"""The page about fleets: its files are valid, it names every key, and the published schema is that of the code."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.fleet.streams_file.fields import ALERT_KEYS, GROUP_KEYS, SINKS, STREAM_KEYS
from airflow_provider_fds.fleet.streams_file.file import parse_fleet_file
from airflow_provider_fds.fleet.streams_file.schema import published_schema, streams_schema

PAGE = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text(encoding="utf-8")
FILES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", FILES)
def test_every_file_of_the_page_is_valid(text):
    assert parse_fleet_file(text, "streams.yaml", {})[1].messages() == []


def test_the_commands_of_the_page_print_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams.yaml").write_text(FILES[0])
    commands = re.findall(r"^\$ fds (validate .*)\n(.*)\n", PAGE, re.MULTILINE)
    assert commands
    for command, expected in commands:
        assert main(shlex.split(command)) == 0
        assert capsys.readouterr().out == f"{expected}\n"


@pytest.mark.parametrize("key", [*STREAM_KEYS, *GROUP_KEYS, *ALERT_KEYS, *SINKS])
def test_the_page_names_every_key(key):
    assert f"`{key}`" in PAGE


def test_the_published_schema_is_that_of_the_code():
    assert json.loads(published_schema()) == streams_schema(), "run scripts/streams_schema.py"
