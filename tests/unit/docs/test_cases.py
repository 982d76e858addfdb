"""The list of conformance cases for a Delta source has 79 numbers: each has a test, or a line in ``differences.md``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]

_NUMBERS = r"\d+(?:(?:, | and |-)\d+)*"


def numbers(text: str) -> set[int]:
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_every_case_of_the_list_is_somewhere():
    covered: set[int] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        for words in re.findall(rf"[Cc]ases? ({_NUMBERS})", text):
            covered |= numbers(words)
        for name in re.findall(r"def test_((?:\d+_(?:and_)?)+)", text):
            covered |= numbers(name.replace("_", " "))
        covered |= {int(number) for number in re.findall(r'id="(\d+)[:" ]', text)}
    for words in re.findall(rf"\(case ({_NUMBERS})\)", (ROOT / "docs" / "differences.md").read_text()):
        covered |= numbers(words)
    assert set(range(1, 80)) - covered == set()
