"""``fds`` imports the module of the chosen command only, so that each starts fast."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_provider_fds.cli.command_list import commands_beside
from airflow_provider_fds.cli.main import parser

#: What runs before a command does anything: ``fds`` with these arguments, up to the parsed arguments.
_STARTED = """
import sys
from airflow_provider_fds.cli.main import main
code = main(sys.argv[1:])
found = {name.rpartition(".")[2] for name in sys.modules if name.startswith("airflow_provider_fds.cli.commands.")}
print("modules", *sorted(found))
sys.exit(code)
"""


def modules_of(*words: str) -> set[str]:
    ran = subprocess.run([sys.executable, "-c", _STARTED, *words], capture_output=True, text=True, check=True)
    return set(ran.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    ("words", "imported"),
    [
        (["--help"], set()),
        (["--version"], set()),
        (["status", "--help"], {"status"}),
        (["explain", "--help"], {"status"}),
        (["latest", "--help"], {"inspect"}),
        # one module has all actions, and recover asks like them
        (["rewind", "--help"], {"actions", "recover"}),
        (["prepare", "--help"], {"prepare"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_only_the_module_of_the_chosen_command_is_imported(words, imported):
    assert modules_of(*words) == imported


def test_the_help_lists_each_command_once_with_its_text():
    listed = parser(command="").format_help()
    assert listed == parser().format_help()
    for name, (_, text) in commands_beside(None).items():
        assert listed.split().count(name) >= 1
        assert " ".join(text.split()) in " ".join(listed.split())
