"""Names of streams, and of what lies in their folders."""

from __future__ import annotations

import pytest

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.layout import StreamFolder, numbered_name, parse_numbered_name


@pytest.mark.parametrize("name", ["orders", "orders_to_bronze", "A-1.b_c", "_x", "0", "a" * 100])
def test_a_name_of_the_allowed_characters_is_a_folder(name):
    assert StreamFolder(name).entry(7) == f"{name}/ledger/00000000000000000007.json"


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a b", "é", "a" * 101, "a\n", "a:b", None, 7])
def test_any_other_name_is_refused_with_the_allowed_ones(name):
    with pytest.raises(ConfigurationError, match=r"invalid stream name .*for example 'orders_to_bronze'"):
        StreamFolder(name)


def test_numbered_names_sort_as_numbers_and_are_parsed_strictly():
    assert sorted([numbered_name(10), numbered_name(9)]) == [numbered_name(9), numbered_name(10)]
    assert parse_numbered_name(numbered_name(123)) == 123
    for other in (
        "123.json",
        "0" * 20,
        "0" * 21 + ".json",
        "0" * 20 + ".json.tmp",
        "x" * 20 + ".json",
        "0" * 20 + ".JSON",
    ):
        assert parse_numbered_name(other) is None


def test_everything_of_a_stream_is_in_the_folder_of_its_name():
    folder = StreamFolder("orders")
    assert folder.fold(3) == "orders/ledger/_checkpoint/00000000000000000003.json"
    assert folder.attempt_reports(2, 5) == "orders/attempts/2/5"
    assert (folder.job_specs(2, 5), folder.fence_jobs(2)) == ("orders/jobs/2/5", "orders/jobs/2/fence")
    assert folder.below("manifests/1/0-ab") == "orders/manifests/1/0-ab"
    assert (folder.snapshots, folder.cleaned) == ("orders/snapshots", "orders/housekeeping.json")
    assert folder.probe("t").startswith("orders/ledger/_probe/")
