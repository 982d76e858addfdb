"""Nothing of a cache is run that somebody else may have put there."""

from __future__ import annotations

import hashlib
import os
from importlib import metadata
from pathlib import Path

import pytest

from airflow_provider_fds.spark.installation import cache
from airflow_provider_fds.spark.installation.cache import PINNED, PINNED_FOLDERS, SparkSetupError
from airflow_provider_fds.spark.installation.install import delta_package
from airflow_provider_fds.spark.installation.jars import HADOOP_AWS_PACKAGE, delta_jars, s3a_jars
from airflow_provider_fds.spark.submission.class_archive import class_archive
from airflow_provider_fds.spark.submission.driver_zip import driver_zip
from airflow_provider_fds.spark.submission.properties import private_file

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
def test_a_folder_of_another_user_is_not_used(jars, tmp_path, monkeypatch, name, is_root_of_it):
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
def test_excess_permissions_are_removed_or_the_folder_is_not_used(jars, tmp_path, monkeypatch, name):
    use = uses(tmp_path, monkeypatch)[name]
    use()
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    use()
    assert folder.stat().st_mode & 0o777 == (0o700 if name == "private" else 0o755)
    folder.chmod(0o777)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    with pytest.raises(SparkSetupError, match="other users can write to it"):
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


@pytest.fixture
def s3a(tmp_path, monkeypatch):
    """The JARs of the S3 file system in a cache, a large one among them, whose versions are known."""
    artifact, version = HADOOP_AWS_PACKAGE.split(":")[1:]
    folder = tmp_path / "jars" / f"{artifact}-{version}"
    folder.mkdir(parents=True)
    for name, size in (("large.jar", 2000), ("small.jar", 10)):
        (folder / name).write_bytes(name[:1].encode() * size)
    pinned = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.iterdir()}
    assert folder.name in PINNED_FOLDERS
    monkeypatch.setattr(cache, "PINNED_FOLDERS", {folder.name: pinned})
    monkeypatch.setattr(cache, "_READ_ALWAYS_BYTES", 1000)
    assert [jar.name for jar in s3a_jars(tmp_path)] == ["large.jar", "small.jar"]
    return folder


@pytest.mark.parametrize("name", ["large.jar", "small.jar"])
def test_a_jar_of_the_s3_file_system_that_was_exchanged_is_not_used(tmp_path, s3a, name):
    jar = s3a / name
    stamp = jar.stat()
    jar.write_bytes(b"x" * stamp.st_size)
    # also if it has the size and the time of the one before
    os.utime(jar, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    for _ in range(2):
        with pytest.raises(SparkSetupError, match=f"{name} has the SHA-256"):
            s3a_jars(tmp_path)


def test_an_extra_or_missing_jar_of_the_s3_file_system_is_refused(tmp_path, s3a):
    (s3a / "more.jar").write_bytes(b"")
    with pytest.raises(SparkSetupError, match=r"unexpected or missing files \(more\.jar\)"):
        s3a_jars(tmp_path)
    (s3a / "more.jar").unlink()
    (s3a / "small.jar").unlink()
    with pytest.raises(SparkSetupError, match=r"unexpected or missing files \(small\.jar\)"):
        s3a_jars(tmp_path)


def test_an_unchanged_large_jar_is_read_only_once(tmp_path, s3a, monkeypatch):
    read = []
    monkeypatch.setattr(cache, "_compare", lambda jar, _sha256: read.append(jar.name))
    s3a_jars(tmp_path)
    assert read == ["small.jar"]
    (tmp_path / "private" / "large.jar.checked").write_text("another")
    s3a_jars(tmp_path)
    assert sorted(read) == ["large.jar", "small.jar", "small.jar"]
