"""Draw the packages of FDS and their rooms in docs/design/architecture.md, from the imports of the code.

    scripts/package_picture.py            write the picture
    scripts/package_picture.py --check    fail if the page has another one

All imports count, also those inside functions and those for types.
"""

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "airflow_provider_fds"
PAGE = ROOT / "docs" / "design" / "architecture.md"
BEGIN, END = "<!-- packages: begin -->\n", "<!-- packages: end -->\n"

#: Of no package: examples use them, and are used by nothing.
LEFT_OUT = {"example_dags"}
#: Width of a line of the picture.
WIDTH = 118


def modules() -> dict[str, ast.Module]:
    """Return the modules of the package by their dotted names, without the package's own."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] not in LEFT_OUT and len(parts) > 1:
            found[".".join(parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(tree: ast.Module, known: set[str]) -> set[str]:
    """Return the modules of the package that a module imports."""
    prefix = f"{PACKAGE.name}."
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(prefix):
            module = node.module.removeprefix(prefix)
            for alias in node.names:
                name = f"{module}.{alias.name}"
                found.add(name if name in known else module if module in known else f"{module}.__init__")
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix(prefix) for alias in node.names if alias.name.startswith(prefix)}
    return found & known


def room_of(module: str) -> tuple[str, str]:
    """Return the package and the room of a module, ``""`` for a module of the package itself."""
    package, *rest = module.split(".")
    return package, rest[0] if len(rest) > 1 else ""


def levels(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the nodes in levels: each imports only nodes of the levels before its own.

    Raises:
        graphlib.CycleError: There are none.
    """
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    found = []
    while ready := sorted(sorter.get_ready()):
        found.append(ready)
        sorter.done(*ready)
    return found


def picture() -> str:
    """Return the picture: a line for each package, with its rooms and what it imports, from the top to the bottom."""
    trees = modules()
    packages: dict[str, set[str]] = {}
    rooms: dict[str, dict[str, set[str]]] = {}
    for module, tree in trees.items():
        package, room = room_of(module)
        others = packages.setdefault(package, set())
        # the first page of a package offers names of its rooms
        inside = rooms.setdefault(package, {})
        if not module.endswith(".__init__") or room:
            inside.setdefault(room, set())
        for target in imports(tree, set(trees)):
            other, other_room = room_of(target)
            if other != package:
                others.add(other)
            elif room != other_room and f"{package}.__init__" not in (module, target):
                inside[room].add(other_room)
    lines = []
    for level in reversed(levels(packages)):
        for package in level:
            lines += _lines(package, rooms[package], packages[package])
    return "```\n" + "\n".join(lines) + "\n```\n"


def _lines(package: str, rooms: dict[str, set[str]], others: set[str]) -> list[str]:
    head = f"{package + '/':13}"
    found = []
    if set(rooms) != {""}:
        order = [" · ".join(name or "(modules)" for name in level) for level in levels(rooms)]
        found += _wrapped(head, " ◄─ ".join(order), " ◄─ ")
        head = " " * len(head)
    return [*found, *_wrapped(head, "imports " + (", ".join(sorted(others)) or "no other package"), ", ")]


def _wrapped(head: str, text: str, joint: str) -> list[str]:
    lines, line = [], head
    for number, part in enumerate(text.split(joint)):
        added = part if number == 0 else joint + part
        if len(line) + len(added) > WIDTH:
            lines.append(line)
            line, added = " " * len(head), joint.lstrip() + part
        line += added
    return [*lines, line]


def main() -> int:
    """Write the picture into the page, or compare it."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    new = picture()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(before + BEGIN + new + END + after, encoding="utf-8")
        return 0
    if old == new:
        return 0
    print("docs/design/architecture.md shows other packages than the code has: run scripts/package_picture.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
