"""The pages say only what is there: their code runs in tests, their commands run here, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.source.options.options import SourceOptions

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"
TESTED_CODE = [*(ROOT / "airflow_provider_fds" / "example_dags").rglob("*.py")]


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in FENCE.findall(page.read_text(encoding="utf-8")) if found == language]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_example_is_part_of_a_dag_that_tests_run(page):
    for block in blocks(page, "python"):
        assert any(block.rstrip() in path.read_text(encoding="utf-8") for path in TESTED_CODE), block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_commands_of_the_cli_page_run_and_print_what_it_says(log_builder, tmp_path, monkeypatch, capsys):
    log_builder.create()
    log_builder.append(2)
    log_builder.append(3)
    shutil.copytree(log_builder.root, tmp_path / "work" / "orders", copy_function=shutil.copy2)
    monkeypatch.chdir(tmp_path / "work")
    ran = 0
    for block in blocks(ROOT / "docs" / "cli.md", "console"):
        for part in block.split("$ ")[1:]:
            command, *expected = part.splitlines()
            name, *arguments = shlex.split(command)
            assert name == "fds"
            assert main(arguments) == 0, command
            printed = capsys.readouterr().out
            if expected:
                assert printed.splitlines() == expected, command
            ran += 1

    assert ran >= 6


def test_every_make_target_in_the_readme_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", "\n".join(blocks(ROOT / "README.md", "bash")), re.MULTILINE):
        assert f"\n{target}:" in makefile


# D42
def test_every_option_is_in_the_options_page():
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    for name in SourceOptions.__dataclass_fields__:
        assert f"`{name}`" in page, name


def test_every_public_name_can_be_imported_from_the_root_of_the_package():
    import airflow_provider_fds

    for name in airflow_provider_fds.__all__:
        if name == "fds_dags" or (name.startswith("Delta") and name != "DeltaStream" and not name.endswith("Sink")):
            continue  # these need Airflow, and are imported by its tests
        assert getattr(airflow_provider_fds, name) is not None
    assert "DeltaStream" in dir(airflow_provider_fds)
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        _ = airflow_provider_fds.nothing_of_that_name


def test_every_message_of_the_troubleshooting_page_is_one_of_ours():
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "airflow_provider_fds").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", code)
    messages = re.findall(r"\*\*`([^`]+)`\*\*", TROUBLESHOOTING.read_text(encoding="utf-8"))
    assert len(messages) > 40
    for message in messages:
        assert message in joined, message


def test_each_message_of_the_troubleshooting_page_has_a_cause_and_one_line_on_what_to_do():
    groups = TROUBLESHOOTING.read_text(encoding="utf-8").split("\n## ")
    for group in groups[1:]:
        title = group.splitlines()[0]
        assert f"[{title}](#{title.lower().replace(' ', '-')})" in groups[0], title
        entries = [line for line in group.splitlines() if line.startswith(("- ", "    "))]
        assert entries, title
        for entry, advice in zip(entries[::2], entries[1::2], strict=True):
            assert re.match(r"- (\*\*`[^`]+`\*\*(,? …)?,? ?|a DAG .*)+: .*\.$", entry), entry
            assert re.match(r"    - .*\.$", advice), entry


def test_no_page_or_file_mentions_machines_or_registries():
    words = re.compile(r"python[h]osted|index[-]url|maven2[/]|/(?:root|home)/")
    for path in [*PAGES, *ROOT.glob("*.toml"), *ROOT.glob("requirements/*"), ROOT / "Makefile"]:
        assert not words.search(path.read_text(encoding="utf-8")), path


def test_every_section_of_the_page_on_failures_has_tests_that_exist():
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    cases = page.partition("\n## Case by case\n")[2].partition("\n## ")[0]
    listed = (ROOT / "tests" / "failure_cases.txt").read_text(encoding="utf-8")
    named = re.findall(r"^test_\w+$", listed, re.MULTILINE)
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_[a-z0-9_]+)", path.read_text(encoding="utf-8"))
    }

    assert re.findall(r"^## (.+)$", listed, re.MULTILINE) == re.findall(r"^### (.+)$", cases, re.MULTILINE)
    assert len(named) > 100
    assert set(named) <= defined


def test_the_page_on_upgrades_has_the_formats_of_the_code():
    from airflow_provider_fds.batch.checked_json import SPEC_FORMAT
    from airflow_provider_fds.ledger.entries.entry import ENTRY_FORMAT
    from airflow_provider_fds.ledger.entries.fold import FOLD_FORMAT
    from airflow_provider_fds.ledger.position import CHECKPOINT_FORMAT

    page = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| ")]
    said = [int(row[2]) for row in rows if row[2].isdigit()]
    assert said == [ENTRY_FORMAT, FOLD_FORMAT, CHECKPOINT_FORMAT, SPEC_FORMAT]
