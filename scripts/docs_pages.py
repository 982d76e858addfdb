"""Put the pages of the docs site together in ``build/pages``, from which ``make docs`` builds the site.

People also read the pages of ``docs/`` in a checkout, where links lead to files. Here such a link becomes a link to a
page: of an example, or of a file beside ``docs/``. A link to a file that has no page is an error. The pages on
settings, messages and examples are made from the code, and the list of decisions from the pages.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Final

from message_index import read_messages, render

from airflow_provider_fds.get_provider_info import get_provider_info

ROOT: Final = Path(__file__).resolve().parents[1]
EXAMPLES: Final = "airflow_provider_fds/example_dags"

#: Pages beside ``docs/``, and where they are on the site.
BESIDE: Final = {
    f"{name}.md": f"{name.lower()}.md"
    for name in ("CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY", "SUPPORT")
}

_LINK: Final = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCE: Final = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


class NoPageError(Exception):
    """A page links to a file that is not on the site."""


def main(target: Path = ROOT / "build" / "pages") -> int:
    """Write all pages."""
    shutil.rmtree(target, ignore_errors=True)
    try:
        for name, text in pages().items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    except NoPageError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def pages() -> dict[str, bytes]:
    """Return every file of the site by its name."""
    found: dict[str, bytes] = {}
    for path in sorted((ROOT / "docs").rglob("*")):
        name = path.relative_to(ROOT / "docs").as_posix()
        if path.suffix == ".md":
            found[name] = linked(path.read_text(encoding="utf-8"), f"docs/{name}").encode()
        elif path.is_file():
            found[name] = path.read_bytes()
    for source, name in BESIDE.items():
        found[name] = linked((ROOT / source).read_text(encoding="utf-8"), source).encode()
    found["examples.md"] = examples().encode()
    found["messages.md"] = render(read_messages()).encode()
    found["reference/settings.md"] = settings().encode()
    found["decisions/index.md"] = decisions().encode()
    return found


def linked(text: str, source: str) -> str:
    """Return a page with its links as they are on the site; ``source`` is the page's path in the checkout."""
    here = place(source)

    def on_site(match: re.Match[str]) -> str:
        file = normpath(PurePosixPath(source).parent / match[1])
        if not (ROOT / file).exists():
            raise NoPageError(f"{source} links to {match[1]}, which is not there")
        page, anchor = place(file), match[2] or ""
        if page == "examples.md" and here != page:
            anchor = f"#{example_anchor(file)}"
        return relpath(page, PurePosixPath(here).parent) + anchor

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(on_site, part) for part in parts)


def place(file: str) -> str:
    """Return the page of a file of the checkout."""
    if file == "docs/decisions":
        return "decisions/index.md"
    if file in BESIDE:
        return BESIDE[file]
    if file.startswith("docs/"):
        return file.removeprefix("docs/")
    if file.startswith(EXAMPLES):
        return "examples.md"
    raise NoPageError(f"{file} has no page on the site")


def example_anchor(file: str) -> str:
    """Return the anchor of an example."""
    return PurePosixPath(file).stem


def examples() -> str:
    """Return the page with all examples: what each says of itself, and its code."""
    folder = ROOT / EXAMPLES
    text = [
        "# Examples",
        "",
        "The tests run each of these files. They are in the package, in `airflow_provider_fds/example_dags`: copy one",
        "to your DAG folder, and change it there. `FDS_EXAMPLE_LAKE` is where the tables are, `s3://lake` by default.",
    ]
    for path in (*sorted(folder.glob("[!_]*.py")), *sorted(folder.glob("[!_]*/*.py"))):
        code = path.read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(code)) or ""
        body = code.split('"""', 2)[2].strip()
        name = path.relative_to(folder).as_posix()
        text += ["", f"## {name} {{ #{path.stem} }}", "", docstring.replace("``", "`"), "", "```python", body, "```"]
    return "\n".join(text) + "\n"


def settings() -> str:
    """Return the page with the settings of ``[fds]``."""
    section = get_provider_info()["config"]["fds"]
    rows = [
        f"| `{name}` | {_code(option['default'])} | {option['description']} | {_code(option['example'])} "
        f"| `AIRFLOW__FDS__{name.upper()}` |"
        for name, option in section["options"].items()
    ]
    head = [
        "# Settings",
        "",
        "Section `[fds]` of `airflow.cfg`, or environment variables. `airflow config list --section fds` lists them.",
        "",
        "| setting | default | meaning | example | variable |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


def decisions() -> str:
    """Return the list of decisions, the newest day first."""
    lines = ["# Decisions", "", "Why things are as they are, with what was measured.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md"), key=lambda path: (_newest_first(path), path.name)):
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        lines.append(f"- {path.name[:10]}: [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def _newest_first(path: Path) -> int:
    return -int(path.name[:10].replace("-", ""))


def _code(text: str) -> str:
    return f"`{text}`" if text else "none"


if __name__ == "__main__":
    sys.exit(main())
