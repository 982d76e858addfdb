"""Every command that a message or a page tells a person to type is one that ``fds`` takes, with all it needs."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from airflow_provider_fds.cli.command_list import ADMIN, all_commands
from airflow_provider_fds.cli.main import main, parser
from airflow_provider_fds.command_hints import with_staging

ROOT = Path(__file__).parents[3]
#: With an argument at least: a bare `fds run` is a name, not a command to type.
COMMAND = re.compile(r"`(fds (?:admin [a-z-]+|(?!admin\b)[a-z-]+) [^`]+)`")
#: What stands for a value of the person's in a page.
PLACEHOLDERS = {
    "N-M": "1-2",
    "keep|delete|empty": "keep",
    "keep|empty": "keep",
    "N": "1",
    "batch:N": "batch:1",
    "TIME": "2026-01-01",
    "START/END": "a/b",
    "…": "text",
}


def texts_of(path: Path) -> list[str]:
    """The strings of a module, with 1 for every value that is put in; docstrings are not messages."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            found.append(node.value)
    return [" ".join(text.split()) for text in found]


def commands(texts: list[str]) -> set[str]:
    return {command for text in texts for command in COMMAND.findall(text)}


MESSAGES = sorted(
    {
        (str(path.relative_to(ROOT)), command)
        for path in (ROOT / "airflow_provider_fds").rglob("*.py")
        for command in commands(texts_of(path))
    }
)
PAGES = sorted(
    {
        (path.name, command)
        for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
        for command in commands([path.read_text(encoding="utf-8")])
    }
)


@pytest.mark.parametrize(("place", "command"), MESSAGES)
def test_a_command_in_a_message_needs_nothing_that_the_message_does_not_say(place, command, monkeypatch):
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", "/staging")
    arguments = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)[1:]]
    try:
        parser().parse_args(arguments)
    except SystemExit:
        pytest.fail(f"{place}: `{command}` is no command that fds takes")


@pytest.mark.parametrize(("place", "command"), PAGES)
def test_a_command_in_a_page_is_one_that_fds_takes(place, command, monkeypatch):
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", "/staging")
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)[1:]]
    if words[1].startswith("--to") or words[1] == "--new-sink":
        # the form of a command, named in a sentence about a stream
        words.insert(1, "STREAM")
    # pages leave the reason out, which is said once for all commands
    try:
        parser().parse_args(words)
    except SystemExit:
        try:
            parser().parse_args([*words, "--why", "text"])
        except SystemExit:
            pytest.fail(f"{place}: `{command}` is no command that fds takes")


@pytest.mark.parametrize(
    "text",
    [
        "`fds adopt orders --why …`",
        "`fds reset orders --sink-rows keep --why …`",
        "`fds rebind STREAM --why …`",
        "`fds rewind orders --to-version 3 --why …`",
        "`fds rewind orders --to batch:x --why …`",
    ],
)
def test_an_older_spelling_would_be_noticed(text, monkeypatch):
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", "/staging")
    (command,) = commands([text])
    with pytest.raises(SystemExit):
        parser().parse_args([PLACEHOLDERS.get(word, word) for word in shlex.split(command)[1:]])


def test_a_command_that_is_only_named_is_one_that_there_is():
    verbs = {*all_commands(), ADMIN}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    modules = (ROOT / "airflow_provider_fds").rglob("*.py")
    texts = [(page, page.read_text(encoding="utf-8")) for page in pages]
    texts += [(module, "\n".join(texts_of(module))) for module in modules]
    texts += [(page, page.read_text(encoding="utf-8")) for page in (ROOT / "airflow_provider_fds").rglob("*.js")]
    former = {"upgrading.md", "2026-11-27-one-set-of-verbs.md"}
    unknown = {
        (path.name, verb)
        for path, text in texts
        for verb in re.findall(r"(?:`|running |run |^)fds ([a-z][a-z-]*)", text, re.MULTILINE)
        if verb not in verbs and path.name not in former
    }
    assert not unknown


#: What a shell may split or take for its own: names of streams and numbers need no quotes.
UNSAFE = re.compile(r"(?:--(?:sink|table|deployment|moved-to|staging|checkpoint|file)|fds plan) UNQUOTED")


def unquoted(path: Path) -> list[str]:
    """The strings of a module that put a folder, a URI or a name of a deployment into a command as it is."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = (
                str(part.value)
                if isinstance(part, ast.Constant)
                else "QUOTED"
                if ast.unparse(part.value).startswith("shlex.quote(")
                else "UNQUOTED"
                for part in node.values
            )
            found += UNSAFE.findall("".join(parts))
    return found


def test_what_a_message_puts_into_a_command_is_quoted_for_the_shell():
    modules = (ROOT / "airflow_provider_fds").rglob("*.py")
    assert not {path.name: found for path in modules if (found := unquoted(path))}


def test_there_are_commands_to_check():
    assert len(MESSAGES) > 30
    assert len(PAGES) > 20


def test_a_message_with_commands_says_in_which_staging_folder_they_work(log_builder, tmp_path, capsys):
    log_builder.create()
    log_builder.append(1)
    staging = str(tmp_path / "staging")
    plan = ("plan", str(log_builder.root), "--stream", "orders", "--staging", staging)
    assert main([*plan, "--option", "starting_version=0"]) == 0
    assert main(["hold", "orders", "--why", "a test", "--staging", staging]) == 0
    log_builder.append(1)

    main(["rewind", "orders", "--to", "9", "--why", "x", "--yes", "--staging", staging])

    said = capsys.readouterr().err
    assert "`fds skip orders --version N --why …`" in said
    assert f"(`fds` commands: --staging {staging})" in said


def test_a_message_without_a_command_is_not_changed():
    assert with_staging("call `fds run` again", "/staging") == "call `fds run` again"


def test_staging_may_come_from_the_environment(log_builder, tmp_path, monkeypatch, capsys):
    log_builder.create()
    staging = str(tmp_path / "staging")
    main(["plan", str(log_builder.root), "--stream", "orders", "--staging", staging])
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", staging)

    assert main(["status", "orders"]) == 0
    assert "orders" in capsys.readouterr().out
    monkeypatch.delenv("AIRFLOW__FDS__STAGING")
    assert main(["status", "orders"]) == 2
