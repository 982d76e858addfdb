"""The commands of `docker/compose.yaml`, for tests that start the same services as processes on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = Path(__file__).parents[1] / "docker" / "compose.yaml"


def compose() -> dict[str, Any]:
    """Return the file as a mapping."""
    parsed: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return parsed


def command(service: str, instead: Mapping[str, str]) -> list[str]:
    """Return the command of a service as a list of words.

    Args:
        service: Its name.
        instead: Replacements in the command (host, port, folder), by the text that they replace; each must occur.
    """
    text = str(compose()["services"][service]["command"])
    missing = [old for old in instead if old not in text]
    assert not missing, f"{missing} are not in the command of {service}: {text}"
    words = []
    for word in shlex.split(text):
        for old, new in instead.items():
            word = word.replace(old, new)  # noqa: PLW2901 - one after the other
        words.append(word)
    return words
