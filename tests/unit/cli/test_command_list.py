"""``fds`` imports the module of the chosen command only, so that each starts fast; and it knows what was meant."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_provider_fds.cli.command_list import ADMIN, all_commands, help_of
from airflow_provider_fds.cli.main import main, parser

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
        (["admin", "--help"], set()),
        (["status", "--help"], {"status"}),
        (["explain", "--help"], {"status"}),
        (["latest", "--help"], {"plan"}),
        # one module has all actions, and recover asks like them
        (["rewind", "--help"], {"actions", "recover"}),
        (["admin", "prepare", "--help"], {"prepare"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_only_the_module_of_the_chosen_command_is_imported(words, imported):
    assert modules_of(*words) == imported


def test_the_help_lists_each_command_once_with_its_text(capsys):
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert main(["admin", "--help"]) == 0
    rare = capsys.readouterr().out
    for name in all_commands():
        found = [text for text in (listed, rare) if f"\n  {name} " in text]
        assert len(found) == 1, name
        assert " ".join(help_of(name).split()) in " ".join(found[0].split())
    assert f"\n  {ADMIN} " in listed


def test_all_commands_have_their_arguments_at_once():
    assert parser().parse_args(["admin", "prepare"]).command is not None
    assert parser().parse_args(["explain", "orders", "--staging", "s"]).stream == "orders"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["acknowlege", "orders"],
            "there is no command 'acknowlege'. Did you mean `fds accept` (go on with",
        ),
        (["adopt", "orders"], "Did you mean `fds unlock`?"),
        (["reset", "orders"], "Did you mean `fds rewind STREAM --to start`?"),
        (["rebind", "orders"], "Did you mean `fds replan STREAM --new-sink`?"),
        (["rewind", "orders", "--to-version", "3"], "unrecognized arguments: --to-version. It is now `--to N`"),
        (["rewind", "orders", "--to-version=3"], "unrecognized arguments: --to-version. It is now `--to N`"),
        (["rewind", "orders", "--to-timestamp", "2026"], "--to-timestamp. It is now `--to TIME`"),
        (["rewind", "orders", "--to-batch", "3"], "--to-batch. It is now `--to batch:N`"),
        (["rewind", "orders", "--sink-row", "keep"], "--sink-row. Did you mean '--sink-rows'?"),
        (["admin", "--hel"], "arguments are required: COMMAND"),
        (["clone", "orders", "audit"], "Did you mean `fds fork`?"),
        (["show", "orders"], "Did you mean `fds status STREAM --full`?"),
        (["top"], "Did you mean `fds status --watch`?"),
        (["export", "orders", "file"], "Did you mean `fds admin export`?"),
        (["stauts"], "Did you mean `fds status`?"),
        (["admin", "exprot"], "there is no command 'admin exprot'. Did you mean `fds admin export`?"),
        (["frobnicate"], "`fds --help` lists the commands"),
        (["status", "--stagin", "s"], "unrecognized arguments: --stagin. Did you mean '--staging'?"),
        (["status", "--full=1", "x", "--staging", "s"], "ignored explicit argument '1'"),
        (["status", "--lag", "1h", "--staging", "s"], "unrecognized arguments: --lag. Did you mean '--lagging'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_misspelled_or_older_name_is_an_error_that_names_the_one_that_is_meant(words, says, capsys):
    assert main(words) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_misspelled_stream_is_an_error_that_names_the_one_that_is_meant(log_builder, tmp_path, capsys):
    log_builder.create()
    place = ["--staging", str(tmp_path / "staging")]
    assert main(["plan", str(log_builder.root), "--stream", "orders", *place]) == 0
    assert main(["explain", "odrers", *place]) == 2
    assert "there is no stream 'odrers' in" in (told := capsys.readouterr().err)
    assert "Did you mean 'orders'?" in told
