"""The pages of the docs site: they are put together, each is in the navigation, and each link leads to one."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import airflow_provider_fds
from airflow_provider_fds.get_provider_info import get_provider_info
from airflow_provider_fds.source.options.options import SourceOptions

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[3]
NO_DEFAULT = "\N{EN DASH}"


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """``scripts/docs_pages.py``."""
    sys.path.insert(0, str(ROOT / "scripts"))
    spec = importlib.util.spec_from_file_location("docs_pages", ROOT / "scripts" / "docs_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(site: ModuleType) -> dict[str, str]:
    """The text of every page by its name."""
    return {name: data.decode() for name, data in site.pages().items() if name.endswith(".md")}


def navigation(entries: list[dict[str, object]]) -> list[str]:
    found = []
    for entry in entries:
        for target in entry.values():
            found += navigation(target) if isinstance(target, list) else [target]
    return found


def test_every_page_is_in_the_navigation_once(pages):
    listed = navigation(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    # the list of decisions leads to each of them
    expected = [name for name in pages if not re.match(r"decisions/\d", name)]
    assert sorted(listed) == sorted(expected)
    for name in pages:
        if name not in listed:
            assert f"]({Path(name).name})" in pages["decisions/index.md"]


def test_no_link_of_the_site_leads_out_of_it(pages, site):
    names = set(site.pages())
    for name, text in pages.items():
        for target in re.findall(r"\]\((?!\w+:|#)([^)#]+)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            resolved = (Path("/") / name).parent / target
            assert resolved.resolve().relative_to("/").as_posix() in names, f"{name}: {target}"


def test_a_link_to_a_file_without_a_page_is_an_error(site):
    with pytest.raises(site.NoPageError, match="Makefile has no page"):
        site.linked("see [it](../Makefile)", "docs/new.md")
    with pytest.raises(site.NoPageError, match="is not there"):
        site.linked("see [it](nothing.md)", "docs/new.md")


def test_links_to_files_become_links_to_pages(site):
    text = "[a](../SECURITY.md) [b](../airflow_provider_fds/example_dags/jobs/load_orders.py) [c](cli.md#x) [d](https://x/y)"
    assert site.linked(text, "docs/new.md") == (
        "[a](security.md) [b](examples.md#load_orders) [c](cli.md#x) [d](https://x/y)"
    )
    assert site.linked("[a](docs/cli.md)", "SECURITY.md") == "[a](cli.md)"
    assert site.linked("[a](../decisions)", "docs/design/x.md") == "[a](../decisions/index.md)"


def test_every_example_is_on_the_page_of_examples(pages):
    folder = ROOT / "airflow_provider_fds" / "example_dags"
    files = [path for path in folder.rglob("*.py") if path.name != "__init__.py"]
    assert len(files) > 8
    for path in files:
        assert f"{{ #{path.stem} }}" in pages["examples.md"]
        assert path.read_text().split('"""', 2)[2].strip() in pages["examples.md"]


def test_the_reference_has_every_public_name_and_its_module_is_there(pages):
    named = re.findall(r"^::: (\S+)$", pages["reference/api.md"], re.MULTILINE)
    classes = {name.rpartition(".")[2] for name in named if name != "airflow_provider_fds.errors"}
    assert classes | {"FdsError"} == set(airflow_provider_fds.__all__) - {"__version__"}
    for name in named:
        module, _, last = name.rpartition(".")
        path = ROOT / f"{module.replace('.', '/')}.py"
        if last[0].isupper():
            assert f"\nclass {last}(" in path.read_text() or f"\nclass {last}:" in path.read_text(), name


def test_both_tables_of_settings_have_those_of_the_code(pages):
    options = get_provider_info()["config"]["fds"]["options"]
    for page in ("reference/settings.md", "operators.md"):
        section = pages[page].partition("Settings")[2]
        rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
        assert [row[0].strip("| `") for row in rows] == list(options), page
        for row in rows:
            default = options[row[0].strip("| `")]["default"]
            assert not default or row[1].strip("`") == default, row


def test_lists_begin_after_an_empty_line_as_the_site_needs_it(pages):
    for name, text in pages.items():
        lines = re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines()
        for before, line in pairwise(lines):
            if re.match(r"(- |\d+\. )", line):
                assert not before or re.match(r"(- |\d+\. |  )", before), f"{name}: {line}"


def test_the_table_of_options_has_the_options_and_defaults_of_the_code():
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    tables = page.split("## The same in Structured Streaming")[0]
    rows = [[cell.strip() for cell in line.split(" | ")] for line in tables.splitlines() if line.startswith("| `")]
    said = {row[0].strip("| `"): row[1] for row in rows}
    fields = SourceOptions.__dataclass_fields__
    assert sorted(row[0].strip("| `") for row in rows) == sorted(fields)
    for name, field in fields.items():
        if said[name].startswith("`"):
            assert said[name] == f'`"{field.default}"`' or said[name] == f"`{field.default}`", name
        elif said[name] == NO_DEFAULT:
            assert not field.default or callable(field.default_factory), name
        elif isinstance(field.default, int):
            number = int(re.match(r"[0-9]+", said[name])[0])
            assert field.default == number << (30 if "GiB" in said[name] else 0), name
