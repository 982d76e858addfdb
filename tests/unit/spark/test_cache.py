"""Nothing of a cache is run that somebody else may have put there."""

from __future__ import annotations

import hashlib
import os
from importlib import metadata
from pathlib import Path

import pytest

from airflow_provider_fds.spark import cache
from airflow_provider_fds.spark.cache import PINNED, SparkSetupError
from airflow_provider_fds.spark.class_archive import class_archive
from airflow_provider_fds.spark.install import delta_jars, delta_package
from airflow_provider_fds.spark.properties import private_file
from airflow_provider_fds.spark.submit import driver_zip

SOMEBODY = 4711


@pytest.fixture
def jars(tmp_path, monkeypatch):
    """JARs in a cache, whose versions are known."""
    folder = tmp_path / "jars"
    folder.mkdir()
    _, artifact, version = delta_package().split(":")
    found = [folder / f"{artifact}-{version}.jar", folder / f"delta-storage-{version}.jar"]
    for jar in found:
        jar.write_bytes(jar.name.encode())
    pinned = {jar.name: hashlib.sha256(jar.name.encode()).hexdigest() for jar in found}
    monkeypatch.setattr(cache, "PINNED", pinned)
    return found


def uses(tmp_path, monkeypatch):
    """What takes something out of the cache, or puts a secret into it."""

    def private():
        with private_file(tmp_path, {"a": "1"}, ""):
            pass

    monkeypatch.setenv("FDS_CLASS_ARCHIVE", "use")
    java = tmp_path / "jdk" / "lib" / "server" / "libjvm.so"
    java.parent.mkdir(parents=True)
    java.touch()
    (tmp_path / "jdk" / "bin").mkdir()
    (tmp_path / "jdk" / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    jar = str(java)
    return {
        "driver": lambda: driver_zip(tmp_path),
        "jars": lambda: delta_jars(tmp_path),
        "private": private,
        "classes": lambda: class_archive(jar, "", tmp_path),
    }


@pytest.mark.parametrize("name", ["driver", "jars", "private", "classes"])
@pytest.mark.parametrize("is_root_of_it", [True, False])
def test_a_folder_of_somebody_else_is_not_used(jars, tmp_path, monkeypatch, name, is_root_of_it):
    use = uses(tmp_path, monkeypatch)[name]
    use()
    folder = tmp_path if is_root_of_it else tmp_path / name
    folder.mkdir(exist_ok=True)
    real = Path.stat

    def stat(self, **options):
        found = real(self, **options)
        if self != folder:
            return found
        return os.stat_result([*found[:4], SOMEBODY, *found[5:10]])

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(SparkSetupError, match=f"belongs to user {SOMEBODY}.*FDS_CACHE_DIR"):
        use()


@pytest.mark.parametrize("name", ["driver", "jars", "private", "classes"])
def test_rights_that_others_need_not_have_are_taken_away_or_the_folder_is_not_used(jars, tmp_path, monkeypatch, name):
    use = uses(tmp_path, monkeypatch)[name]
    use()
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    use()
    assert folder.stat().st_mode & 0o777 == (0o700 if name == "private" else 0o755)
    folder.chmod(0o777)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    with pytest.raises(SparkSetupError, match="others can write into it"):
        use()


def test_new_folders_are_this_users_alone(tmp_path):
    driver_zip(tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_a_zip_of_the_right_name_with_other_bytes_is_replaced(tmp_path):
    path = driver_zip(tmp_path)
    right = path.read_bytes()
    path.write_bytes(b"print('not ours')")
    assert driver_zip(tmp_path).read_bytes() == right
    elsewhere = tmp_path / "elsewhere.zip"
    elsewhere.write_bytes(right)
    path.unlink()
    path.symlink_to(elsewhere)
    assert not driver_zip(tmp_path).is_symlink()


def test_a_jar_that_was_changed_is_not_used(jars, tmp_path):
    assert delta_jars(tmp_path) == tuple(jars)
    for jar in jars:
        right = jar.read_bytes()
        jar.write_bytes(b"not ours")
        with pytest.raises(SparkSetupError, match=rf"{jar.name} has the SHA-256 [0-9a-f]{{64}}, expected") as caught:
            delta_jars(tmp_path)
        assert "Remove it" in str(caught.value)
        jar.write_bytes(right)
    assert delta_jars(tmp_path) == tuple(jars)


def test_the_jars_of_the_bundled_spark_are_known():
    if not metadata.version("pyspark").startswith("4.2."):
        pytest.skip("the JARs of other versions are not pinned")
    _, artifact, version = delta_package().split(":")
    assert {f"{artifact}-{version}.jar", f"delta-storage-{version}.jar"} <= set(PINNED)
