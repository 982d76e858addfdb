"""Tables of a real Unity Catalog whose log is complete, what is none of them, and names that come to mean others."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.errors import ConfigurationError, LedgerError, LostPositionError, TableNotFoundError
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import DeltaStream, TablePoller
from tests.interop.unity.conftest import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.interop.unity.conftest import Loads
    from tests.interop.unity.server import UnityServer


@pytest.fixture
def append(spark: SparkSession) -> Callable[[Path, int], None]:
    def append(folder: Path, first: int) -> None:
        spark.range(first, first + 10, 1, 1).write.format("delta").mode("append").save(str(folder))

    return append


@pytest.fixture
def folder(unity: UnityServer, name: str) -> Path:
    return unity.lake / f"external é %20 {name}"


@pytest.fixture
def external(unity: UnityServer, append: Callable[[Path, int], None], folder: Path, name: str) -> Path:
    """An external table of two appends; return its folder."""
    append(folder, 0)
    append(folder, 10)
    unity.make_external(name, folder.as_uri())
    return folder


def test_an_external_table_is_loaded_and_polled_by_its_name(
    external: Path, append: Callable[[Path, int], None], loads: Loads, name: str, spark: SparkSession
):
    stream = loads.stream(name)
    session = loads.load(stream)
    state = session.connected.state
    assert (state.table, state.catalog.name) == (external.as_uri(), name)
    poller = TablePoller(stream, session.connected.context.open_table(name), Offset.from_json(state.position))
    assert poller.check() is None
    append(external, 20)
    assert poller.check().newest_version == 2
    loads.load(stream)
    assert counted(loads.loaded(stream)) == counted(spark.range(30).toDF("id"))
    # by its path, it is the same stream
    by_path = DeltaStream(stream.name, table=str(external), starting_version=0)
    assert loads.load(by_path).connected.state.uuid == state.uuid


def test_a_table_that_was_renamed_goes_on_under_its_new_name(
    external: Path, append: Callable[[Path, int], None], loads: Loads, name: str, unity: UnityServer
):
    stream = loads.stream(name)
    before = loads.load(stream).connected.state
    unity.rename(name, f"{name.rpartition('.')[2]}_new")
    with pytest.raises(TableNotFoundError, match=f"has no table {name}. .*if the table was renamed, use its new name"):
        loads.load(stream)
    append(external, 20)
    after = loads.load(loads.stream(f"{name}_new")).connected.state
    assert (after.uuid, after.catalog.name, after.catalog.table_id) == (
        before.uuid, f"{name}_new", before.catalog.table_id
    )  # fmt: skip
    assert loads.loaded(stream).count() == 30


def test_a_table_that_was_registered_anew_over_the_same_files_goes_on(
    external: Path, append: Callable[[Path, int], None], loads: Loads, name: str, unity: UnityServer
):
    stream = loads.stream(name)
    before = loads.load(stream).connected.state
    unity.drop(name)
    table_id = unity.make_external(name, external.as_uri())
    append(external, 20)
    after = loads.load(stream).connected.state
    assert before.catalog.table_id != table_id == after.catalog.table_id
    assert loads.loaded(stream).count() == 30


def test_a_table_that_was_created_anew_elsewhere_stops_the_stream(
    external: Path, append: Callable[[Path, int], None], loads: Loads, name: str, unity: UnityServer
):
    stream = loads.stream(name)
    loads.load(stream)
    unity.drop(name)
    other = external.with_name(f"{external.name} other")
    append(other, 500)
    unity.make_external(name, other.as_uri())
    with pytest.raises(LedgerError, match=f"the table {name} at .*, but {name} is now another one, at .*other"):
        loads.load(stream)
    assert loads.loaded(stream).count() == 20


def test_a_table_that_was_created_anew_in_its_folder_is_a_lost_position(
    external: Path, append: Callable[[Path, int], None], loads: Loads, name: str, unity: UnityServer
):
    stream = loads.stream(name)
    loads.load(stream)
    unity.drop(name)
    shutil.rmtree(external)
    for first in (500, 510, 520):
        append(external, first)
    unity.make_external(name, external.as_uri())
    with pytest.raises(LostPositionError):
        loads.load(stream)
    assert loads.loaded(stream).count() == 20


def test_what_is_no_delta_table_is_named(loads: Loads, unity: UnityServer, name: str):
    location = f"file://{unity.lake}/files-{name}"
    kinds = {"CSV": "a table of the format CSV", "PARQUET": "a table of the format PARQUET"}
    for kind, words in kinds.items():
        of_kind = f"{name}_{kind.lower()}"
        unity.make_other(of_kind, "EXTERNAL", data_source_format=kind, storage_location=f"{location}-{kind}")
        with pytest.raises(ConfigurationError, match=f"{of_kind} in Unity Catalog {unity.url} is {words}"):
            loads.places.resolve(of_kind)
    definition = f'version: "1.1"\nsource: {name}\nmeasures:\n  - name: n\n    expr: SUM(id)\n'
    unity.make_other(f"{name}_view", "METRIC_VIEW", view_definition=definition)
    with pytest.raises(ConfigurationError, match=f"{name}_view in Unity Catalog {unity.url} is a metric view"):
        loads.places.resolve(f"{name}_view")


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("nope.sales.orders", r"\. It shows no catalog nope to this connection"),
        ("main.nope.orders", r"\. It shows no schema main\.nope to this connection"),
        ("main.sales.nope", r"\. Correct the name; if the table was renamed"),
    ],
)
def test_the_part_of_a_name_that_is_missing_is_named(loads: Loads, missing: str, words: str):
    with pytest.raises(TableNotFoundError, match=f"has no table {missing}{words}"):
        loads.places.resolve(missing)


def test_the_tables_of_a_schema_are_listed(loads: Loads, unity: UnityServer):
    unity.call("POST", "/schemas", {"name": "few", "catalog_name": "main"})
    few = TableName.parse("main.few")
    assert loads.places.catalog.tables(few) == []
    names = [f"main.few.t{number:03d}" for number in range(120)]
    for one in names:
        unity.make_other(one, "EXTERNAL", data_source_format="CSV", storage_location=f"file://{unity.lake}/{one}")
    assert [str(found) for found in loads.places.catalog.tables(few)] == names
    with pytest.raises(TableNotFoundError, match=r"It shows no schema main\.nope"):
        loads.places.catalog.tables(TableName.parse("main.nope"))
