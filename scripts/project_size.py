"""Print how large the project is: lines of code, files, modules of a folder, words of documentation, minutes of tests.

A line of code has a token other than a comment or a docstring. Words are those of README.md and docs/, without pages
and tables that a script writes. The times are those of the last ``make test`` and ``make test-all`` here; a test that
both have run counts once.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import xml.etree.ElementTree as ET
from collections import Counter
from operator import itemgetter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
_GENERATED = re.compile(
    r"<!-- [^>]*(?:begin|written by[^>]*|writes this table[^>]*) -->.*?<!-- [^>]*end[^>]* -->|\nWritten by `make.*",
    re.DOTALL,
)


def code_lines(text: str) -> int:
    """Return the number of lines with code."""
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def words(text: str) -> int:
    """Return the number of words that are not in a generated table."""
    return len(_GENERATED.sub("", text).split())


def seconds_of_files(folder: Path) -> dict[str, float]:
    """Return the seconds of the tests of each file, with their fixtures, in the newest run of each; the slowest first.

    Args:
        folder: That of the files which ``scripts/run_tests.py`` lets pytest write.
    """
    tests: dict[tuple[str, str], float] = {}
    for path in sorted(folder.glob("*.xml"), key=lambda path: path.stat().st_mtime):
        for case in ET.parse(path).iter("testcase"):
            tests[case.get("classname", ""), case.get("name", "")] = float(case.get("time", 0))
    seconds: dict[str, float] = {}
    for (module, _), taken in tests.items():
        file = module.replace(".", "/") + ".py"
        seconds[file] = seconds.get(file, 0) + taken
    return dict(sorted(seconds.items(), key=itemgetter(1), reverse=True))


def main() -> None:
    """Print the numbers."""
    for folder in ("airflow_provider_fds", "tests", "scripts"):
        files = [path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts]
        lines = sum(code_lines(path.read_text(encoding="utf-8")) for path in files)
        print(f"{folder}: {lines:,} lines of code in {len(files)} files")
    modules = Counter(
        path.parent for path in (ROOT / "airflow_provider_fds").rglob("*.py") if path.name != "__init__.py"
    )
    largest = ", ".join(f"{path.relative_to(ROOT)} {count}" for path, count in modules.most_common(5))
    print(f"modules of a folder, the largest: {largest}")
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    print(
        f"documentation: {sum(words(page.read_text(encoding='utf-8')) for page in pages):,} words on {len(pages)} pages"
    )
    for profile in ("short", "all", "extended", "nightly"):
        last = ROOT / "build" / f"last-{profile}.txt"
        print(f"tests, {profile}:", last.read_text(encoding="utf-8").strip() if last.exists() else "not run here")
    slowest = list(seconds_of_files(ROOT / "build" / "test-logs").items())[:10]
    print("tests, the slowest files:", *(f"    {taken:5.0f} s {name}" for name, taken in slowest), sep="\n")


if __name__ == "__main__":
    main()
