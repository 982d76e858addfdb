"""Folders that earlier versions of FDS have left: today's code opens, continues and rewinds each of their streams.

A later format adds a folder (``scripts/golden_folders.py``); these tests take every folder that they find.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.ledger.entries.action import KINDS
from airflow_provider_fds.ledger.entries.entry import Entry
from tests import golden_folder
from tests.golden_folder import FOLDERS, PLACE, GoldenStream, facts_of_checkpoint, facts_of_file, folders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXPECTED: dict[Path, dict[str, Any]] = {
    folder: json.loads((folder / "expected.json").read_bytes()) for folder in folders()
}
STREAMS = [(folder, key) for folder, expected in EXPECTED.items() for key in expected["streams"]]
CHECKPOINTS = [(folder, name) for folder, expected in EXPECTED.items() for name in expected["checkpoints"]]

of_each_folder = pytest.mark.parametrize("folder", EXPECTED, ids=lambda folder: folder.name)
of_each_stream = pytest.mark.parametrize(
    ("folder", "key"), STREAMS, ids=[f"{folder.name}-{key}" for folder, key in STREAMS]
)
of_each_checkpoint = pytest.mark.parametrize(
    ("folder", "name"), CHECKPOINTS, ids=[f"{folder.name}-{name}" for folder, name in CHECKPOINTS]
)


@pytest.fixture(scope="module")
def place() -> Iterator[golden_folder.GoldenPlace]:
    with golden_folder.reserved() as reserved:
        yield reserved


@pytest.fixture
def expected(folder, key, place):
    """The facts of a stream, whose folder is in its place."""
    place.put_back(folder)
    return EXPECTED[folder]["streams"][key]


@pytest.fixture
def stream(expected):
    return GoldenStream(**expected["declared"])


def plain(facts: Any) -> Any:
    return json.loads(json.dumps(facts))


def test_there_is_a_folder_and_every_one_has_its_facts():
    assert EXPECTED
    assert set(EXPECTED) == {path for path in FOLDERS.iterdir() if path.is_dir()}


@of_each_folder
def test_every_stream_of_the_folder_has_facts(folder, place):
    place.put_back(folder)
    ledgers = {path.parents[0].relative_to(PLACE).as_posix() for path in PLACE.glob("*staging/[!.]*/ledger")}
    assert ledgers == EXPECTED[folder]["streams"].keys()


def test_the_newest_folder_has_every_kind_of_entry():
    newest = list(EXPECTED)[-1]
    found = {json.loads(path.read_bytes())["action"]["kind"] for path in newest.glob("files/*/*/ledger/*.json")}
    assert found == set(KINDS)


def test_the_newest_folder_has_a_stream_whose_table_was_moved():
    newest = list(EXPECTED)[-1]
    actions = [json.loads(path.read_bytes())["action"] for path in newest.glob("files/*/named_moved/ledger/*.json")]
    (moved,) = (action for action in actions if action["kind"] == "named" and "table" in action)
    assert moved["why"]
    assert EXPECTED[newest]["streams"]["staging/named_moved"]["state"]["table"] == moved["table"]


@of_each_stream
def test_a_stream_is_opened(stream, expected):
    assert stream.state() == expected["state"]
    assert plain(stream.status()) == expected["status"]
    assert stream.history() == expected["history"]


@of_each_stream
def test_a_stream_is_opened_from_its_entries_alone(stream, expected):
    stream.without_folds()
    assert stream.state() == expected["state"]


@of_each_stream
def test_a_stream_plans_what_was_planned_and_one_more_commit(stream, expected):
    stream.append()
    assert plain(stream.left()) == expected["left"]
    assert plain(stream.continued()) == expected["continued"]


@of_each_stream
def test_a_stream_is_rewound(stream, expected):
    assert plain(stream.rewound()) == expected["rewound"]


@of_each_checkpoint
def test_a_checkpoint_is_read_and_agrees_with_its_ledger(folder, name, place):
    place.put_back(folder)
    facts = facts_of_checkpoint(PLACE / "checkpoints" / name)
    assert facts == EXPECTED[folder]["checkpoints"][name]
    key = f"staging/{facts['stream']}"
    stream = GoldenStream(**EXPECTED[folder]["streams"][key]["declared"])
    ledger = stream.ledger()
    state = ledger.load(FileCheckpointStore(PLACE / "checkpoints" / name).read())
    assert golden_folder.facts_of_state(state) == EXPECTED[folder]["streams"][key]["state"]
    (entry,) = ledger.read([facts["n"]])
    assert isinstance(entry, Entry)


@of_each_folder
def test_every_report_spec_manifest_snapshot_status_file_and_archive_is_decoded(folder, place):
    place.put_back(folder)
    found = {str(path.relative_to(PLACE)): facts_of_file(path) for path in golden_folder.all_files()}
    known = EXPECTED[folder]["files"]
    assert plain({name: found[name] for name in known}) == known


@of_each_folder
def test_no_field_of_an_entry_a_report_or_a_spec_is_lost(folder, place):
    place.put_back(folder)
    checked = 0
    for path in golden_folder.all_files():
        if (read := golden_folder.decoded(path)) is None:
            continue
        stored, found = json.loads(path.read_bytes()), golden_folder.plain(read)
        # a later format may name things otherwise; then the facts above say what must be found
        if stored.get("format") != found.get("format"):
            continue
        assert_contains(found, stored, str(path))
        checked += 1
    assert checked


def assert_contains(found: Any, stored: Any, where: str) -> None:
    """Fail if something that is stored was not read."""
    if isinstance(stored, dict):
        assert isinstance(found, dict), where
        for name, value in stored.items():
            assert name in found, f"{where}: {name} is lost"
            assert_contains(found[name], value, f"{where}: {name}")
    elif isinstance(stored, list):
        assert isinstance(found, list), where
        assert len(found) == len(stored), where
        for n, value in enumerate(stored):
            assert_contains(found[n], value, f"{where}: {n}")
    else:
        assert found == stored, where
