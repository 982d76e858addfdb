"""The design pages agree with the code: entries, packages, and every page, section and test that something cites."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

import airflow_provider_fds.ledger.entries.entry  # noqa: F401  # imports all kinds of entry
from airflow_provider_fds.ledger.entries.action import KINDS

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "airflow_provider_fds"
LEDGER = (ROOT / "docs/design/ledger.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs/design/architecture.md").read_text(encoding="utf-8")

#: A page of this project, and perhaps a section of it: ``docs/design/ledger.md, "Entries"``.
_CITATION = re.compile(r'`*((?:docs/)?[\w./-]+\.md)`*(?:,\s+(?:part\s+)?"([^"]+)")?')


def table(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    text = page.split(f"\n## {heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    assert lines is not None
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines.group().splitlines()]
    return rows[2:]


def citations() -> list[tuple[str, str, str | None]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for page, section in _CITATION.findall(re.sub(r"\s+", " ", ast.get_docstring(node) or "")):
                found.append((path.relative_to(ROOT).as_posix(), page, section or None))
    return found


@pytest.mark.parametrize(("module", "page", "section"), citations())
def test_every_page_that_a_docstring_cites_exists(module, page, section):
    target = ROOT / page
    assert target.is_file(), f"{module} cites {page}"
    if section is not None:
        assert re.search(rf"^#+ {re.escape(section)}$", target.read_text(encoding="utf-8"), re.MULTILINE), section


def test_the_ledger_page_lists_every_action_with_all_its_fields():
    documented = {row[0].strip("`"): tuple(re.findall(r"`(\w+)`", row[1])) for row in table(LEDGER, "Entries")}
    in_code = {kind: action.__struct_fields__ for kind, action in KINDS.items()}

    assert documented == in_code


def test_the_ledger_page_lists_the_files_of_staging():
    documented = " ".join(row[0] for row in table(LEDGER, "Files in staging"))
    for folder in (
        "ledger/",
        "ledger/_checkpoint/",
        "ledger/_probe/",
        "manifests/",
        "snapshots/",
        "jobs/",
        "attempts/",
    ):
        assert f"`{folder}" in documented


def test_the_packages_are_listed_in_the_order_that_the_linter_enforces():
    listed = [name for row in table(ARCHITECTURE, "Packages") for name in re.findall(r"`(\w+)/`", row[0])]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = [layer for layer in contracts[0]["layers"] if (PACKAGE / layer).is_dir()]

    assert sorted(listed) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert set(layers) == set(listed)


def test_a_listed_package_imports_only_packages_listed_above_it():
    listed = [name for row in table(ARCHITECTURE, "Packages") for name in re.findall(r"`(\w+)/`", row[0])]
    for path in PACKAGE.glob("*/**/*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        for name in re.findall(r"^\s*from airflow_provider_fds\.(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            if name in listed:
                assert listed.index(name) <= listed.index(room), f"{path}: {name}"


@pytest.mark.parametrize("row", table(ARCHITECTURE, "Where a change goes"), ids=lambda row: row[0])
def test_every_module_that_the_page_names_for_a_change_exists(row):
    _, modules, also = row
    named = re.findall(r"`([\w/<>]+\.pyi?)`", modules)
    assert named
    for path in named:
        if "<name>" not in path:
            assert (PACKAGE / path).is_file(), path
        else:
            assert any(PACKAGE.glob(path.replace("<name>", "*"))), path
    files = [PACKAGE / path for path in named if "<name>" not in path]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    for name in re.findall(r"`@?(\w+)`", modules):
        assert re.search(rf"\b{name}\b", text), name
    for page in re.findall(r"\]\(([^)#]+)", also):
        assert (ROOT / "docs/design" / page).is_file(), page


def test_the_way_of_a_run_is_at_most_ten_steps_through_files_that_exist():
    _, _, way = ARCHITECTURE.partition("The way of a run of")
    steps = re.findall(r"^[0-9]+\. .*", way.partition("\n\nThe same packages")[0], re.MULTILINE)
    named = re.findall(r"`([\w/]+(?:\.py|/))`", "\n".join(steps))
    assert 5 <= len(steps) <= 10
    assert len(named) > len(steps)
    for path in named:
        assert (PACKAGE / path).exists(), path


def test_the_files_on_the_way_of_a_run_have_what_it_names():
    _, _, way = ARCHITECTURE.partition("The way of a run of")
    way = way.partition("\n\nThe same packages")[0]
    text = "\n".join((PACKAGE / path).read_text(encoding="utf-8") for path in re.findall(r"`([\w/]+\.py)`", way))
    names = set(re.findall(r"`(?:\w+\.)?(\w+)`", way)) - {"py", *KINDS}
    assert len(names) > 5
    for name in names:
        assert re.search(rf"^ *(def|class) {name}\b", text, re.MULTILINE), name


@pytest.mark.parametrize("page", [LEDGER, ARCHITECTURE], ids=["ledger", "architecture"])
def test_every_test_that_a_design_page_names_exists(page):
    named = re.findall(r"`(tests/[\w./-]+)`", page)
    assert named
    for path in named:
        assert (ROOT / path).exists(), path


def test_the_glossary_defines_each_term_once_and_in_order():
    terms = [row[0] for row in table(ARCHITECTURE, "Glossary")]
    assert len(terms) >= 20
    assert terms == sorted(set(terms))


@pytest.mark.parametrize("page", sorted((ROOT / "docs/decisions").glob("2*.md")), ids=lambda page: page.stem)
def test_every_decision_says_when_it_was_made_and_whether_it_is_in_force(page):
    date = page.name[:10]
    status = re.search(r"\A# .+\n\n(.+)\n\n", page.read_text(encoding="utf-8"))

    assert status is not None
    made, _, state = status.group(1).partition(" · ")
    assert made == date
    if state != "in force":
        successor = re.fullmatch(r"superseded by \[[^\]]+\]\(([^)]+)\)", state)
        assert successor is not None, state
        assert (page.parent / successor.group(1)).is_file()
