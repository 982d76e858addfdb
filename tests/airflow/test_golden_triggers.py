"""Triggers that an earlier version of FDS has stored in Airflow's database are rebuilt from their arguments."""

from __future__ import annotations

import json
from importlib import import_module
from pkgutil import iter_modules

import pytest
from airflow.triggers.base import BaseTrigger

from airflow_provider_fds import triggers
from tests.golden_folder import folders

STORED = [path for folder in folders() for path in sorted((folder / "files" / "triggers").glob("*.json"))]


def class_at(path):
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


@pytest.mark.parametrize("stored", STORED, ids=lambda path: f"{path.parents[2].name}-{path.stem}")
def test_a_stored_trigger_is_rebuilt_with_all_its_arguments(stored):
    found = json.loads(stored.read_bytes())
    trigger = class_at(found["classpath"])(**found["kwargs"])
    classpath, arguments = trigger.serialize()
    assert class_at(classpath) is type(trigger)
    assert {name: arguments.get(name) for name in found["kwargs"]} == found["kwargs"]


def test_the_newest_folder_has_every_trigger():
    newest = [path for path in STORED if path.is_relative_to(folders()[-1])]
    found = {json.loads(path.read_bytes())["classpath"] for path in newest}
    known = set()
    for module in iter_modules(triggers.__path__, f"{triggers.__name__}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, BaseTrigger) and value.__module__ == module.name:
                known.add(f"{value.__module__}.{value.__name__}")
    assert found == known
