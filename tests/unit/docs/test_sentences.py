"""The first pages that somebody reads have short sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ["README.md", "docs/index.md", "docs/tutorial.md", "docs/concepts.md"]
MOST_WORDS = 30


def sentences(text: str) -> list[str]:
    """The sentences of a page, each without addresses of links; code blocks and pictures are left out.

    An item of a list and a cell of a table end a sentence, as a full stop does.
    """
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`]+`", "code", text)
    parts = re.split(r"\n(?:\s*\n)*\s*(?:[-*]|\d+\.) |\n\s*\n|\||(?<=[.?!])(?:\*\*)?\s", text)
    return [" ".join(part.split()) for part in parts if part.strip()]


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_is_longer_than_thirty_words(page):
    found = sentences((ROOT / page).read_text(encoding="utf-8"))
    assert len(found) > 5
    assert [sentence for sentence in found if len(sentence.split()) > MOST_WORDS] == []


def test_a_long_sentence_would_be_noticed():
    long = " ".join(["word"] * 31)
    text = f"# Title\n\nShort. {long}.\n\n- {long}\n- short\n\n```text\n{long}\n```\n\n| a | {long} |\n"
    assert [len(each.split()) for each in sentences(text) if len(each.split()) > MOST_WORDS] == [31, 31, 31]
