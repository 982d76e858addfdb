"""Write the notes of a release to build/release-notes.md: its section of CHANGELOG.md.

scripts/release_notes.py v1.0.0    fail unless the tag is that of the package's version, and its section has a date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTES = ROOT / "build" / "release-notes.md"


def problem(tag: str, version: str, changelog: str) -> str | None:
    """Return why the tag makes no release, ``None`` if it does."""
    if tag != f"v{version}":
        return f"the tag {tag} is not that of version {version} in airflow_provider_fds/__init__.py: v{version}"
    if not re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        return f"CHANGELOG.md has no section '## {version} - YYYY-MM-DD'"
    return None


def section(version: str, changelog: str) -> str:
    """Return what the changelog says of a version, without its heading."""
    _, _, rest = changelog.partition(f"\n## {version} - ")
    text = rest.partition("\n")[2].partition("\n## ")[0]
    # links lead out of the page of a release
    return re.sub(r"\]\((?!https?:)([^)]+)\)", rf"](../blob/v{version}/\1)", text).strip() + "\n"


def main(tag: str) -> int:
    """Write the notes."""
    found = re.search(
        r'^__version__ = "([^"]+)"', (ROOT / "airflow_provider_fds/__init__.py").read_text(), re.MULTILINE
    )
    assert found is not None, "no version in airflow_provider_fds/__init__.py"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if (why := problem(tag, found[1], changelog)) is not None:
        print(f"release: {why}", file=sys.stderr)
        return 1
    NOTES.parent.mkdir(exist_ok=True)
    NOTES.write_text(section(found[1], changelog), encoding="utf-8")
    print(f"release: {NOTES.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
