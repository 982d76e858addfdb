"""Write the tables of pages that say only what the code says: settings, metrics, entries of the ledger, packages.

scripts/code_tables.py            write the tables
scripts/code_tables.py --check    fail if a page has another one
"""

from __future__ import annotations

import ast
import inspect
import sys
import tomllib
from pathlib import Path
from typing import Final

import airflow_provider_fds.ledger.entries.entry  # noqa: F401  # imports all kinds of entry
from airflow_provider_fds.get_provider_info import get_provider_info
from airflow_provider_fds.ledger.entries.action import KINDS
from airflow_provider_fds.stream.monitoring.metrics import METRICS

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
PACKAGE: Final = ROOT / "airflow_provider_fds"


def settings() -> list[str]:
    """Return the lines of the table of settings."""
    return [
        "| setting | default | meaning | example |",
        "|---|---|---|---|",
        *(
            f"| `{name}` | {_code(option['default'])} | {option['description']} | {_code(option['example'])} |"
            for name, option in get_provider_info()["config"]["fds"]["options"].items()
        ),
    ]


def metrics() -> list[str]:
    """Return the lines of the table of metrics."""
    return [
        "| metric | kind | unit | tags | meaning |",
        "|---|---|---|---|---|",
        *(
            f"| `{metric.name}` | {metric.kind} | {metric.unit} | {', '.join(map(_code, metric.tags))} "
            f"| {metric.meaning} |"
            for metric in METRICS
        ),
    ]


def entries() -> list[str]:
    """Return the lines of the table of the ledger's entries: their fields, and the first line of their docstrings."""
    return [
        "| action | fields | means |",
        "|---|---|---|",
        *(
            f"| `{kind}` | {', '.join(map(_code, action.__struct_fields__))} | {_summary(inspect.getdoc(action))} |"
            for kind, action in sorted(KINDS.items())
        ),
    ]


def packages() -> list[str]:
    """Return the lines of the table of packages, each below those that it imports: what its docstring begins with."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    layers = [
        layer
        for layer in reversed(tools["importlinter"]["contracts"][0]["layers"])
        if (PACKAGE / layer / "__init__.py").is_file()
    ]
    lines = ["| package | is |", "|---|---|"]
    for layer in layers:
        docstring = ast.get_docstring(ast.parse((PACKAGE / layer / "__init__.py").read_text(encoding="utf-8")))
        lines.append(f"| `{layer}/` | {_summary(docstring)} |")
    return lines


TABLES: Final = (
    ("operators.md", "settings", settings),
    ("metrics.md", "metrics", metrics),
    ("design/ledger.md", "entries", entries),
    ("design/architecture.md", "package list", packages),
)


def with_table(text: str, name: str, lines: list[str]) -> str:
    """Return a page with this table between its marks."""
    begin, end = f"<!-- {name}: written by scripts/code_tables.py -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no marks of the table {name}")
    return "\n".join([before + begin, "", *lines, "", end + after])


def main() -> int:
    """Write the tables into the pages, or compare them."""
    others = []
    for page, name, lines in TABLES:
        path = DOCS / page
        text = path.read_text(encoding="utf-8")
        new = with_table(text, name, lines())
        if new == text:
            continue
        others.append(page)
        if "--check" not in sys.argv[1:]:
            path.write_text(new, encoding="utf-8")
    if others and "--check" in sys.argv[1:]:
        print(f"{', '.join(others)}: another table than the code has: run scripts/code_tables.py")
        return 1
    return 0


def _summary(docstring: str | None) -> str:
    return (docstring or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")


def _code(text: str) -> str:
    return f"`{text}`" if text else "none"


if __name__ == "__main__":
    sys.exit(main())
