"""The page knows each state of a stream, and in the order of the commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from airflow_provider_fds.stream.monitoring.condition import ATTENTION, Condition

SCRIPT = Path(__file__).parents[3] / "airflow_provider_fds" / "ui" / "static" / "js" / "conditions.js"


def test_the_page_has_words_for_each_state_and_those_that_need_attention_first():
    shown = re.findall(r"^  (\w+): \{ words: ", SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(shown) == set(get_args(Condition))
    order = [one for one in get_args(Condition) if one in ATTENTION]
    assert shown[: len(order)] == order
