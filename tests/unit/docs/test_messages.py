"""The page of all messages has every message of the code, under the reason code with which it is raised."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def index():
    spec = importlib.util.spec_from_file_location("message_index", ROOT / "scripts" / "message_index.py")
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_every_message_of_the_code(index):
    page = index.render(index.read_messages())
    assert page.count("\n- ") > 500
    assert "## `SINK_HAS_ROWS`\n" in page


def test_a_message_is_found_by_its_words_whatever_its_values_and_however_it_is_made(index, tmp_path):
    (tmp_path / "errors.py").write_text(
        "class FdsError(Exception):\n    reason: ClassVar[Reason] = Reason.INTERNAL_ERROR\n"
        "class StorageError(FdsError):\n    reason = Reason.STORAGE_FAILED\n"
        "class Denied(StorageError):\n    pass\n"
        "class Unrelated(Exception):\n    pass\n"
    )
    (tmp_path / "raising.py").write_text(
        "def f(name, problems):\n"
        "    problems.append(f'{name} must be a number above zero.')\n"
        "    if name: raise Unrelated('this is not a message of FDS at all')\n"
        "    if name: raise Denied(f'table {name!r} cannot be ' + 'read from this machine')\n"
        "    if name: raise RefusalError('Kind', f'batch {name} is not in this sink')\n"
        "    raise FdsError('the first word of it ' 'is a word', reason=Reason.ACCESS_DENIED)\n"
        "def name_problems():\n"
        "    'A docstring is not a message of the code.'\n"
        "    return ['a name needs a letter first.']\n"
    )
    assert index.read_messages(tmp_path).by_reason == {
        "INVALID_OPTION": ["a name needs a letter first.", "… must be a number above zero."],
        "STORAGE_FAILED": ["table … cannot be read from this machine"],
        "": ["batch … is not in this sink"],
        "ACCESS_DENIED": ["the first word of it is a word"],
    }
