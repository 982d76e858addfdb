"""The checkpoint in a local file."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.errors import CheckpointError, StorageError
from airflow_provider_fds.ledger.position import Checkpoint
from tests.checkpoint_contract import check_home

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoint"
MINE = Checkpoint(
    position="version 8 of s3://lake/orders, 2026-11-22T06:35:13Z, 336,776 rows in the last batch",
    stream="orders",
    uuid="u1",
    deployment="https://airflow.example.com",
    n=7,
    digest="44136fa355b3678a1146ad16f7e8649e",
    epoch=1,
    batch_id=2,
    offset='{"sourceVersion":1,"reservoirId":"r","reservoirVersion":9,"index":-1,"isStartingVersion":false}',
)
FRESH = replace(MINE, position="nothing of s3://lake/orders yet", n=0, batch_id=None, offset=None)


@pytest.mark.parametrize(("name", "checkpoint"), [("committed", MINE), ("created", FRESH)])
def test_a_checkpoint_is_written_as_in_its_golden_file_and_read_from_it(tmp_path, name, checkpoint):
    golden = (GOLDEN / f"{name}.json").read_text()
    assert checkpoint.to_json() == golden
    path = tmp_path / "position.json"
    FileCheckpointStore(path).write(checkpoint)
    assert path.read_text() == golden
    assert FileCheckpointStore(str(path)).read() == checkpoint


def test_a_checkpoint_of_an_older_version_has_no_words(tmp_path):
    path = tmp_path / "position.json"
    path.write_text('{"format":1,' + MINE.to_json().partition('"format":1,')[2])
    assert FileCheckpointStore(path).read() == replace(MINE, position=None)


def test_a_missing_file_is_not_a_checkpoint(tmp_path):
    assert FileCheckpointStore(tmp_path / "none.json").read() is None


def test_the_folder_is_made_and_nothing_but_the_file_is_left(tmp_path):
    store = FileCheckpointStore(tmp_path / "a" / "b" / "position.json")
    store.write(FRESH)
    store.write(MINE)
    assert store.read() == MINE
    assert [p.name for p in (tmp_path / "a" / "b").iterdir()] == ["position.json"]


@pytest.mark.parametrize("text", ["", "{", "7", '{"offset":"{}"}', "null"])
def test_a_file_that_holds_something_else_is_an_error_that_names_it_and_the_command(tmp_path, text):
    path = tmp_path / "position.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"position\.json does not contain an FDS checkpoint.*fds recover"):
        FileCheckpointStore(path).read()


def test_a_checkpoint_of_another_format_is_refused(tmp_path):
    path = tmp_path / "position.json"
    path.write_text(replace(MINE, format=2).to_json())
    with pytest.raises(
        CheckpointError, match=r"of stream 'orders' in format 2, but this FDS reads format 1.*fds recover orders"
    ):
        FileCheckpointStore(path).read()


def test_a_path_that_cannot_be_a_file_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("x")
    for store in (FileCheckpointStore(tmp_path / "file" / "position.json"), FileCheckpointStore(tmp_path)):
        with pytest.raises(StorageError, match=r"checkpoint file .* cannot be written"):
            store.write(MINE)


def test_the_home_is_named_in_words(tmp_path):
    assert FileCheckpointStore(tmp_path / "p.json").home == f"checkpoint file {tmp_path / 'p.json'}"


def test_a_file_satisfies_the_checkpoint_contract(tmp_path):
    path = tmp_path / "position.json"
    check_home(FileCheckpointStore(path), path.write_text)
