"""Two lists of conformance cases: each number has a test, or a line in ``differences.md``.

The first list, 79 numbers, is of Delta's streaming source; a number of it is written ``case 12``. The second, 48
numbers, is of earlier systems that read tables as streams; a number of it is written ``D12``, so that the two cannot be
taken for each other: as ``# D12`` or ``# D12, D13`` above a test, ``id="D12 …"`` of a parameter, ``(D12)`` in the page.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
DIFFERENCES = ROOT / "docs" / "differences.md"

_NUMBERS = r"\d+(?:(?:, | and |-)\d+)*"
_EARLIER = r"D\d+(?:, D\d+)*"

#: Cases of earlier systems that neither a test nor the page has, each with the reason.
NOT_YET: dict[int, str] = {}


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
    for words in re.findall(rf"\(case ({_NUMBERS})\)", DIFFERENCES.read_text()):
        covered |= numbers(words)
    assert set(range(1, 80)) - covered == set()


def test_every_case_of_earlier_systems_is_somewhere_or_listed_as_not_yet():
    covered = numbers(" ".join(re.findall(rf"\(({_EARLIER})\)", DIFFERENCES.read_text())))
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path == Path(__file__):
            continue
        text = path.read_text()
        for words in re.findall(rf"^ *# ({_EARLIER})$", text, re.MULTILINE):
            covered |= numbers(words)
        covered |= {int(number) for number in re.findall(r'id="D(\d+)[" ]', text)}
    known = set(range(1, 49))
    assert covered - known == set()
    assert known - covered == set(NOT_YET)
    assert all(NOT_YET.values())


def test_a_number_of_earlier_systems_stands_above_a_test():
    for path in (ROOT / "tests").rglob("test_*.py"):
        for line in re.findall(rf"^ *# {_EARLIER}\n(.*)", path.read_text(), re.MULTILINE):
            assert re.match(r" *(@pytest|@given|@named|(async )?def test_)", line), f"{path.name}: {line}"
