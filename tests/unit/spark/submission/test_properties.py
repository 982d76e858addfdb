"""The properties file that holds what nobody else may see."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from airflow_provider_fds.credentials import is_secret
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.submission.properties import private_file, properties_text, property_names


def test_the_users_own_lines_come_last_and_take_precedence(tmp_path):
    with private_file(tmp_path, {"a": "1", "b": "x\\y"}, "a=2\n") as path:
        assert path.read_text() == "a=1\nb=x\\\\y\na=2\n"
        assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_is_also_removed_after_an_error(tmp_path):
    with pytest.raises(KeyboardInterrupt), private_file(tmp_path, {"a": "1"}, "") as path:
        raise KeyboardInterrupt
    assert not path.exists()


def test_files_of_a_killed_process_are_removed_and_those_of_a_running_one_are_kept(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host = socket.gethostname().replace("-", "_").replace(".", "_")
    (tmp_path / "private").mkdir()
    left, used, other = (
        tmp_path / "private" / f"{name}.properties"
        for name in (f"{host}-{gone.pid}-x", f"{host}-{os.getppid()}-x", f"else-{gone.pid}-x")
    )
    for path in (left, used, other):
        path.touch()
    with private_file(tmp_path, {"a": "1"}, ""):
        assert not left.exists()
        assert used.exists()
        assert other.exists()


def test_a_line_break_in_a_secret_is_refused_without_showing_it(tmp_path):
    with (
        pytest.raises(SparkSetupError, match=r"the value for a\.secret contains a line break") as caught,
        private_file(tmp_path, {"a.secret": "HUSH\nspark.x=y"}, ""),
    ):
        pass
    assert "HUSH" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "private").touch()
    with pytest.raises(SparkSetupError, match="FDS_CACHE_DIR"), private_file(tmp_path, {"a": "1"}, ""):
        pass


def test_the_file_replaces_the_users_file_or_else_the_defaults(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("home")
    (tmp_path / "spark-defaults.conf").write_text("dir")
    (tmp_path / "own").write_text("own")
    assert properties_text(str(tmp_path / "own"), tmp_path, {}) == "own"
    assert properties_text(None, tmp_path, {}) == "home"
    assert properties_text(None, tmp_path, {"SPARK_CONF_DIR": str(tmp_path)}) == "dir"
    assert properties_text(None, tmp_path / "conf", {}) == ""
    assert properties_text(None, None, {}) == ""


def test_keys_are_read_as_java_reads_them():
    text = "a.b=1\n c : 2\n#d=3\n!e=4\nf\tx\ng\\:h=5\ni=one\\\n  j=two\n\nk\n"
    assert property_names(text) == {"a.b", "c", "f", "g:h", "i", "k"}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net", True),
        ("spark.authenticate.secret", True),
        ("AWS_SESSION_TOKEN", True),
        ("DB_PASSWORD", True),
        ("spark.sql.shuffle.partitions", False),
        ("spark.hadoop.fs.s3a.endpoint", False),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", False),
        ("TZ", False),
    ],
)
def test_a_secret_is_recognised_by_its_name(name, secret):
    assert is_secret(name) is secret


def test_settings_in_a_file_are_read_as_they_were_written(tmp_path):
    with private_file(tmp_path, {}, "a=1", {"a": "x=y:z \\ !", "b": " c"}) as path:
        assert path.read_text() == "a=1\na=x=y:z \\\\ !\nb=\\ c\n"
