"""What Airflow is told about the package."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module, metadata, resources
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest

import airflow_provider_fds
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.get_provider_info import get_provider_info


def test_the_description_follows_airflows_schema(airflow_home):
    schema = json.loads((resources.files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


@pytest.mark.parametrize("kind", ["operators", "sensors", "triggers", "hooks"])
def test_every_listed_module_can_be_imported(kind):
    for integration in get_provider_info()[kind]:
        for module in integration["python-modules"]:
            assert import_module(module)


def test_every_class_of_a_listed_module_is_importable_from_the_package():
    listed = {
        module.rpartition(".")[2]
        for kind in ("operators", "sensors", "triggers", "hooks")
        for integration in get_provider_info()[kind]
        for module in integration["python-modules"]
    }
    public = {
        getattr(airflow_provider_fds, name).__module__.rpartition(".")[2] for name in airflow_provider_fds.__all__[1:]
    }
    assert listed <= public


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        ("operators", "airflow.sdk.BaseOperator"),
        ("sensors", "airflow.sdk.BaseSensorOperator"),
        ("triggers", "airflow.triggers.base.BaseTrigger"),
        ("hooks", "airflow.sdk.BaseHook"),
    ],
)
def test_every_module_with_a_public_class_of_a_kind_is_listed_under_it(kind, base):
    module, _, name = base.rpartition(".")
    kind_class = getattr(import_module(module), name)
    package = import_module(f"airflow_provider_fds.{kind}")
    public = set(airflow_provider_fds.__all__)
    there = set()
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        members = vars(import_module(found.name)).values()
        own = (value for value in members if isinstance(value, type) and value.__module__ == found.name)
        if any(issubclass(value, kind_class) and value.__name__ in public for value in own):
            there.add(found.name)
    listed = {module for integration in get_provider_info()[kind] for module in integration["python-modules"]}
    assert there == listed


def test_the_logo_of_every_integration_is_a_picture_of_the_project_where_providers_keep_theirs():
    for integration in get_provider_info()["integrations"]:
        path = integration["logo"]
        assert path.startswith("/docs/integration-logos/")
        picture = ET.parse(Path(__file__).parents[2] / path.removeprefix("/")).getroot()
        assert picture.tag == "{http://www.w3.org/2000/svg}svg"
        assert picture.get("viewBox")


def test_connection_types_are_listed_if_and_only_if_a_hook_defines_one():
    package = import_module("airflow_provider_fds.hooks")
    defined = {
        value.conn_type
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        for value in vars(import_module(found.name)).values()
        if isinstance(value, type)
        and value.__module__.startswith("airflow_provider_fds")
        # the connections are of types of Airflow's own providers: spark, spark_connect, aws …
        and isinstance(vars(value).get("conn_type"), str)
    }
    listed = get_provider_info().get("connection-types", [])
    assert {entry["connection-type"] for entry in listed} == defined


def test_options_have_text_defaults_as_airflow_needs_them():
    options = get_provider_info()["config"]["fds"]["options"]
    assert {type(option["default"]) for option in options.values()} == {str}
    assert set(options) == {
        "staging",
        "poll_interval",
        "manifest_retention_days",
        "deployment",
        "cache_dir",
        "on_schema_change",
        "catalog_url_template",
        "spark_history_url_template",
        "ui_staging",
        "staging_conn_id",
        "preload",
    }


def test_the_entry_point_loads_the_provider_info():
    (entry,) = [
        point
        for point in metadata.entry_points(group="apache_airflow_provider")
        if point.dist is not None and point.dist.name == "airflow-provider-fds"
    ]
    assert entry.load()() == get_provider_info()


def test_airflow_lists_the_provider(airflow_home):
    command = [sys.executable, "-m", "airflow", "providers", "get", "airflow-provider-fds", "--output", "json"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=airflow_home).stdout
    (found,) = json.loads(shown)
    assert (found["Provider"], found["Version"]) == ("airflow-provider-fds", airflow_provider_fds.__version__)


def test_settings_are_read_from_airflows_configuration(airflow_home, monkeypatch):
    from airflow_provider_fds.hooks.settings import (
        cache_dir,
        deployment,
        poll_interval_seconds,
        refuse_former_settings,
        retention,
        schema_changes,
    )

    assert poll_interval_seconds() == 60
    assert retention().age.days == 14
    assert deployment() == "http://fds.test"
    assert cache_dir() is None
    assert schema_changes() == ()
    monkeypatch.setenv("AIRFLOW__FDS__POLL_INTERVAL", "2.5")
    monkeypatch.setenv("AIRFLOW__FDS__MANIFEST_RETENTION_DAYS", "30")
    assert retention().age.days == 30
    monkeypatch.setenv("AIRFLOW__FDS__RETENTION", "30")
    with pytest.raises(ConfigurationError, match="retention is manifest_retention_days now"):
        refuse_former_settings()
    monkeypatch.setenv("AIRFLOW__FDS__DEPLOYMENT", "production")
    monkeypatch.setenv("AIRFLOW__FDS__CACHE_DIR", "/var/cache/fds")
    assert poll_interval_seconds() == 2.5
    assert deployment() == "production"
    assert str(cache_dir()) == "/var/cache/fds"
    monkeypatch.setenv("AIRFLOW__FDS__ON_SCHEMA_CHANGE", "rename=follow, drop=fail")
    assert schema_changes() == (("drop", "fail"), ("rename", "follow"))


def test_invalid_rules_for_schema_changes_are_refused(monkeypatch):
    from airflow_provider_fds.errors import ConfigurationError
    from airflow_provider_fds.hooks.settings import schema_changes

    monkeypatch.setenv("AIRFLOW__FDS__ON_SCHEMA_CHANGE", "rename=maybe")
    with pytest.raises(ConfigurationError, match=r"\[fds\] on_schema_change must have 'follow', 'ask', 'fail'"):
        schema_changes()


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "a minute", ""])
def test_a_poll_interval_that_is_no_time_is_refused(monkeypatch, given):
    from airflow_provider_fds.errors import ConfigurationError
    from airflow_provider_fds.hooks.settings import poll_interval_seconds

    monkeypatch.setenv("AIRFLOW__FDS__POLL_INTERVAL", given)
    with pytest.raises(ConfigurationError, match=rf"\[fds\] poll_interval is '{given}'; .* greater than 0, such as 60"):
        poll_interval_seconds()


@pytest.mark.parametrize("given", ["-1", "nan", "14d", ""])
def test_a_retention_that_is_no_number_of_days_is_refused_before_anything_is_loaded(airflow_home, monkeypatch, given):
    from airflow_provider_fds import DeltaStream
    from airflow_provider_fds.errors import ConfigurationError
    from airflow_provider_fds.hooks.stream_context import working_context
    from airflow_provider_fds.ledger.owner import Actor, Owner

    monkeypatch.setenv("AIRFLOW__FDS__MANIFEST_RETENTION_DAYS", given)
    stream, owner = DeltaStream("orders", table="/lake/orders"), Owner(kind="airflow", deployment="d")
    with pytest.raises(ConfigurationError, match=rf"\[fds\] manifest_retention_days is '{given}'; .* such as 14"):
        working_context(stream, actor=Actor(deployment="d"), owner=owner, owner_is_running=lambda _: True)


def test_a_retention_may_be_as_long_as_anybody_writes(monkeypatch):
    from airflow_provider_fds.hooks.settings import retention

    monkeypatch.setenv("AIRFLOW__FDS__MANIFEST_RETENTION_DAYS", "99999999999")
    assert datetime.now(UTC) - retention().age < datetime(1999, 1, 1, tzinfo=UTC)


def test_staging_is_local_by_default_only_where_tasks_share_a_disk(airflow_home, monkeypatch):
    from airflow_provider_fds.errors import ConfigurationError
    from airflow_provider_fds.hooks.settings import staging_uri

    assert staging_uri(None, "orders") == (airflow_home / "fds").as_uri()
    assert staging_uri("s3://lake/_fds/", "orders") == "s3://lake/_fds"
    for one_machine in ("LocalExecutor, own:my.module.LocalExecutor", "LocalExecutor;team_b=SequentialExecutor"):
        monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", one_machine)
        assert staging_uri(None, "orders") == (airflow_home / "fds").as_uri()
    # any task may choose any executor, and the last one is not the default
    several = ("CeleryExecutor,LocalExecutor", "KubernetesExecutor;team_b=LocalExecutor")
    for executor in ("CeleryExecutor", *several):
        monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
        with pytest.raises(ConfigurationError, match=r"'orders' has no staging folder.*AIRFLOW__FDS__STAGING"):
            staging_uri(None, "orders")
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", "s3://lake/_fds")
    assert staging_uri(None, "orders") == "s3://lake/_fds"


def test_airflow_lists_the_options_with_their_values(airflow_home):
    # Airflow 3.1 shows the values anyway
    shows_values = [] if metadata.version("apache-airflow-core").startswith("3.1.") else ["--show-values"]
    command = [sys.executable, "-m", "airflow", "config", "list", "--section", "fds", *shows_values]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=airflow_home).stdout
    options = get_provider_info()["config"]["fds"]["options"]
    lines = [line.removeprefix("# ").strip() for line in shown.splitlines()]
    assert lines[0] == "[fds]"
    assert [line for line in lines[1:] if line] == [
        f"{name} = {option['default']}".strip() for name, option in options.items()
    ]
