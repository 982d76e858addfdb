"""No module imports itself by way of others: neither when it is loaded, nor when a function runs, nor for its types."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = "airflow_provider_fds"
ROOT = Path(__file__).parents[2]


def modules(root: Path, package: str) -> dict[str, ast.Module]:
    """Return the modules below ``root/package`` by their dotted names."""
    found = {}
    for path in (root / package).rglob("*.py"):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text())
    return found


def imported(tree: ast.AST, *, with_types: bool) -> set[str]:
    """Return what is imported anywhere in a module, inside functions too; ``with_types``: also for type checkers."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not with_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        found |= imported(node, with_types=with_types)
    return found


def graph(trees: dict[str, ast.Module], package: str, *, with_types: bool) -> dict[str, set[str]]:
    """Return which modules each module imports. A package counts only if a name of its own is imported."""

    def module_of(name: str) -> str:
        while name not in trees:
            name = name.rpartition(".")[0]
        return name

    found = {}
    for module, tree in trees.items():
        names = {name for name in imported(tree, with_types=with_types) if name.split(".")[0] == package}
        found[module] = {module_of(name) for name in names} - {module, package}
    return found


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules of which each imports each, directly or by way of others."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(imports[start])
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += imports[module]
        return seen

    reach = {module: reached(module) for module in imports}
    found = {
        frozenset({module} | {other for other in reach[module] if module in reach[other]})
        for module in imports
        if module in reach[module]
    }
    return sorted((set(circle) for circle in found), key=sorted)


def test_there_are_no_import_cycles_nor_cyclic_types():
    trees = modules(ROOT, PACKAGE)
    assert circles(graph(trees, PACKAGE, with_types=False)) == []
    assert circles(graph(trees, PACKAGE, with_types=True)) == []


@pytest.mark.parametrize(
    ("one", "other", "counts_without_types"),
    [
        ("from pkg.b import x", "from pkg.a import y", True),
        ("def f():\n    from pkg import b", "import pkg.a", True),
        ("if TYPE_CHECKING:\n    from pkg.b import x", "from pkg.a import y", False),
    ],
)
def test_a_cycle_is_found(tmp_path, one, other, counts_without_types):
    (tmp_path / "pkg").mkdir()
    for name, text in (("__init__", ""), ("a", one), ("b", other)):
        (tmp_path / "pkg" / f"{name}.py").write_text(text)
    trees = modules(tmp_path, "pkg")
    assert circles(graph(trees, "pkg", with_types=True)) == [{"pkg.a", "pkg.b"}]
    assert bool(circles(graph(trees, "pkg", with_types=False))) is counts_without_types
