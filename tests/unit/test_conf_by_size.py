"""Which settings a batch of a size gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_fds.backends.base import Application, UserArguments
from airflow_provider_fds.backends.conf_by_size import ConfBySize
from airflow_provider_fds.errors import ConfigurationError

SMALL, LARGE = {"spark.executor.instances": 1}, {"spark.executor.instances": 40}


def application(*transactions: list[int]) -> Any:
    """Return an application whose transactions have parts of these sizes."""
    of_parts = [SimpleNamespace(parts=[SimpleNamespace(num_bytes=size) for size in sizes]) for sizes in transactions]
    session: Any = SimpleNamespace(scope=SimpleNamespace(transactions=lambda batches: of_parts))
    work: Any = SimpleNamespace(batches=tuple(transactions))
    sink: Any = None
    return Application(session, sink, work, "file:///job.json")


@pytest.mark.parametrize(
    ("size", "conf"),
    [(0, SMALL), (1023, SMALL), (1024, SMALL), (1025, LARGE), (10 << 30, LARGE), ((10 << 30) + 1, LARGE)],
)
def test_a_size_is_inclusive_and_the_last_pair_also_applies_to_larger_batches(size: int, conf: dict[str, int]) -> None:
    assert ConfBySize.parse([("1k", SMALL), ("10g", LARGE)]).of(size) == conf
    assert ConfBySize.parse(((1024, SMALL), (10 << 30, LARGE))).of(size) == conf


def test_a_function_chooses_from_the_bytes() -> None:
    found = ConfBySize.parse(lambda size: {"spark.executor.instances": 1 + size // 1000})
    assert found.of(4_999) == {"spark.executor.instances": 5}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"1g": SMALL}, "must be pairs of a size and settings"),
        ([], "must be pairs of a size and settings"),
        ("10g", "must be pairs of a size and settings"),
        (["10g"], "must have pairs of a size and settings"),
        ([("ten", SMALL)], "a size of conf_by_size must be a size of at least 1 byte"),
        ([("10g", SMALL), ("1g", LARGE)], "must increase: '1g' is 1,073,741,824 bytes, after 10,737,418,240"),
        ([("10g", SMALL), ("10g", LARGE)], "must increase"),
        ([("10g", ["spark.a"])], "must have Spark settings by name"),
        ([("10g", {"spark.a": None})], "must be a string, a number or a boolean"),
        ([("10g", {1: "a"})], "must be a string, a number or a boolean with a name"),
    ],
    ids=repr,
)
def test_bad_values_are_refused_early(value: object, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        ConfBySize.parse(value)


def test_an_application_gets_the_settings_of_its_largest_transaction() -> None:
    given = UserArguments(conf={"spark.a": 1, "spark.executor.instances": 3}, conf_by_size=[(100, SMALL), (200, LARGE)])
    assert given.for_application(application([10], [100], [7])).conf == {"spark.a": 1, **SMALL}
    # an interval that is replaced is one transaction of all its batches
    assert given.for_application(application([60, 60])).conf == {"spark.a": 1, **LARGE}
    # the fence of an epoch has no rows
    assert given.for_application(application()).conf == {"spark.a": 1, **SMALL}
    assert UserArguments(conf={"spark.a": 1}).for_application(application([10])).conf == {"spark.a": 1}


def test_a_function_that_returns_no_settings_or_some_without_effect_is_refused() -> None:
    def none(_: int) -> Any:
        return None

    with pytest.raises(ConfigurationError, match="must have Spark settings by name"):
        UserArguments(conf_by_size=none).for_application(application([10]))
    given = UserArguments(executor_memory="4g", conf_by_size=lambda _: {"spark.executor.memory": "8g"})
    with pytest.raises(ConfigurationError, match=r"executor_memory and spark\.executor\.memory in conf"):
        given.for_application(application([10]))
