"""What tests of several commands share."""

from __future__ import annotations

import pytest

from airflow_provider_fds.cli.main import main


@pytest.fixture
def staging(log_builder, tmp_path, capsys):
    """Streams of one table of 3 versions: ``newest`` has nothing to read, ``planned`` has two versions to load."""
    log_builder.create()
    log_builder.append(2)
    log_builder.append(2)
    folder = tmp_path / "staging"
    for name, start in (("newest", "latest"), ("planned", "1")):
        arguments = ("plan", log_builder.root, "--staging", folder, "--stream", name)
        assert main([*map(str, arguments), "--option", f"starting_version={start}"]) == 0
    capsys.readouterr()
    return folder
