"""Writing a checkpoint and reading it back: newer values are fine, hidden ones are not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from airflow_provider_fds.checkpoint.store import write_and_read_back
from airflow_provider_fds.errors import CheckpointError
from tests.checkpoint_contract import MINE


class Home:
    """A home in memory. What is in ``shadow`` is read before what was written."""

    def __init__(self, shadow=None, overtaken_by=()):
        self.value = None
        self.shadow = shadow
        self.overtaken_by = list(overtaken_by)
        self.writes = 0

    def put(self, text):
        self.writes += 1
        self.value = text
        if self.overtaken_by:
            self.value = self.overtaken_by.pop(0)

    def get(self):
        return self.shadow if self.shadow is not None else self.value

    def write(self, checkpoint=MINE):
        return write_and_read_back(
            checkpoint, home="Airflow Variable 'fds.orders'", put=self.put, get=self.get, shadow="Remove AIRFLOW_VAR_X."
        )


def test_a_written_value_is_read_back():
    home = Home()
    home.write()
    assert (home.value, home.writes) == (MINE.to_json(), 1)


def test_a_newer_checkpoint_of_another_writer_is_accepted():
    home = Home(overtaken_by=[replace(MINE, n=8, digest="cd").to_json()])
    home.write()
    assert home.writes == 1


def test_an_older_checkpoint_of_a_slow_writer_is_written_over():
    home = Home(overtaken_by=[replace(MINE, n=6).to_json()])
    home.write()
    assert (home.value, home.writes) == (MINE.to_json(), 2)


def test_a_home_that_cannot_be_read_hides_nothing_and_is_a_warning(caplog):
    home = Home(overtaken_by=[None])
    home.write()
    assert "Airflow Variable 'fds.orders' was written at entry 7 but could not be read back" in caplog.text


@pytest.mark.parametrize(
    "hidden",
    [
        replace(MINE, n=3).to_json(),
        replace(MINE, uuid="u2", n=99).to_json(),
        replace(MINE, stream="customers", n=99).to_json(),
        "42",
        "",
    ],
    ids=["older", "other uuid", "other stream", "no checkpoint", "empty"],
)
def test_a_value_that_hides_the_written_one_is_an_error_that_says_what_to_remove(hidden):
    with pytest.raises(CheckpointError) as refused:
        Home(shadow=hidden).write()
    message = str(refused.value)
    assert [w for w in ("'fds.orders'", repr(hidden), "expected", "Remove AIRFLOW_VAR_X.") if w not in message] == []
