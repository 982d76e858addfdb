"""Names of tables in a catalog."""

from __future__ import annotations

import pytest

from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("main.sales.orders", ("main", "sales", "orders")),
        ("  sales.orders ", ("sales", "orders")),
        ("orders", ("orders",)),
        ("a.b.c.d", ("a", "b", "c", "d")),
        ("main.`my sales`.orders", ("main", "my sales", "orders")),
        ("`a.b`.`c``d`", ("a.b", "c`d")),
        ("größe.表.42_x-y", ("größe", "表", "42_x-y")),
    ],
)
def test_a_name_is_read_and_written(text, parts):
    name = TableName.parse(text)
    assert name.parts == parts
    assert TableName.parse(str(name)) == name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "its part 1 is empty"),
        (".orders", "its part 1 is empty"),
        ("sales.", "its part 2 is empty"),
        ("sales..orders", "its part 2 is empty"),
        ("my sales.orders", "instead of a dot"),
        ("`sales.orders", "needs backticks"),
        ("``.orders", "its part 1 is empty"),
        ("`a`b.orders", "comes 'b' instead of a dot"),
        ("a" * 256 + ".orders", "more than 255 characters"),
        ("`a\nb`.orders", "control character"),
        ("s3://user:secret@lake/orders", "is a path"),
        ("/lake/orders", "omit the catalog's connection"),
        ("./orders", "is a path"),
    ],
)
def test_what_is_no_name_says_why(text, problem):
    with pytest.raises(ConfigurationError, match=problem) as raised:
        TableName.parse(text)
    assert raised.value.reason_code == "CATALOG_NAME_INVALID"
    assert "secret" not in str(raised.value)


def test_a_name_has_the_parts_of_its_catalog():
    name = TableName.parse("sales.orders")
    assert name.expect("database", "table") is name
    with pytest.raises(ConfigurationError, match=r"2 parts, .*names of 3: <catalog>\.<schema>\.<table>"):
        name.expect("catalog", "schema", "table")
