"""Docstrings: what they refer to is there, and the site shows their examples as code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "airflow_provider_fds"
ROOT = Path(__file__).parents[3]
#: ``scripts/docs_roles.py`` shows these
ROLES = {"class", "func", "meth", "attr", "mod", "data"}
REFERENCE = re.compile(r"(?<!`):([a-z:]+):`([^`]+)`")


def files(root: Path) -> list[Path]:
    return sorted((root / PACKAGE).rglob("*.py"))


def names_in(node: ast.AST, scope: str, *, with_imports: bool) -> Iterator[str]:
    """Yield the full names of what a module or class defines, attributes that methods set included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{scope}.{child.name}"
            yield from names_in(child, f"{scope}.{child.name}", with_imports=False)
        elif isinstance(child, ast.ImportFrom) and with_imports:
            yield from (f"{scope}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield f"{scope}.{child.id}"
        elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            yield f"{scope.rpartition('.')[0]}.{child.attr}"
        else:
            yield from names_in(child, scope, with_imports=with_imports)


def known_names(root: Path) -> set[str]:
    """Return the full names of all modules and of what they define; packages also have what they import."""
    found = set()
    for path in (*files(root), *(root / PACKAGE).rglob("*.pyi")):
        is_package = path.stem == "__init__"
        module = ".".join((path.parent if is_package else path.with_suffix("")).relative_to(root).parts)
        found |= {module, *names_in(ast.parse(path.read_text()), module, with_imports=is_package)}
    return found


def lost_references(root: Path) -> list[str]:
    """Return the references of docstrings and comments to names that are not there."""
    known = known_names(root)
    # as Sphinx reads them: a full name, or the end of one
    ends = {name[at:] for name in known for at, letter in enumerate(name) if letter == "."}
    lost = []
    for path in files(root):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for role, target in REFERENCE.findall(line):
                name = target.removeprefix("~")
                is_there = name in known if name.startswith(PACKAGE) else f".{name.removeprefix('.')}" in ends
                if role not in ROLES or not is_there:
                    lost.append(f"{path.relative_to(root)}:{number}: :{role}:`{target}`")
    return lost


def test_what_docstrings_refer_to_is_there():
    assert lost_references(ROOT) == []


@pytest.mark.parametrize(
    ("reference", "is_there"),
    [
        (":class:`One`", True),
        (":meth:`One.do`", True),
        (":attr:`One.set`", True),
        (":data:`LIMIT`", True),
        (":class:`~.a.One`", True),
        (":class:`~airflow_provider_fds.a.One`", True),
        (":class:`~airflow_provider_fds.One`", True),
        (":mod:`.a`", True),
        (":class:`Two`", False),
        (":class:`~.b.One`", False),
        (":class:`~.ne`", False),
        (":class:`~airflow_provider_fds.b.One`", False),
        (":meth:`~airflow_provider_fds.a.do`", False),
        (":klass:`One`", False),
    ],
)
def test_a_reference_to_what_is_not_there_is_found(tmp_path, reference, is_there):
    (tmp_path / PACKAGE).mkdir()
    (tmp_path / PACKAGE / "__init__.py").write_text(f"from {PACKAGE}.a import One")
    (tmp_path / PACKAGE / "a.py").write_text("LIMIT = 1\nclass One:\n    def do(self):\n        self.set: int = LIMIT")
    (tmp_path / PACKAGE / "c.py").write_text(f'"""See {reference}."""')
    assert bool(lost_references(tmp_path)) is not is_there


def test_examples_have_the_heading_that_the_site_shows_as_code():
    for path in files(ROOT):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                # after another heading the site takes >>> for quotes, and brackets for links
                assert not re.search(r"^Example:$", ast.get_docstring(node) or "", re.MULTILINE), path
