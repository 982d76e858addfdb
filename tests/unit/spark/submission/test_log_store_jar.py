"""The JAR in the package is built from the source in ``java/``."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from airflow_provider_fds.spark.installation.cache import default_cache_dir
from airflow_provider_fds.spark.installation.install import bundled_spark_home
from airflow_provider_fds.spark.sink_log import sink_place
from airflow_provider_fds.spark.submission.object_store import S3_LOG_STORE, log_store_jar

SOURCES = Path(__file__).parents[4] / "java" / "src" / "main" / "java"
AGAIN = "build it again: mvn -f java package && cp java/target/fds-s3-log-store.jar airflow_provider_fds/spark/jars/"


def entries(suffix):
    with zipfile.ZipFile(log_store_jar()) as jar:
        return {name: jar.read(name) for name in jar.namelist() if name.endswith(suffix)}


def test_the_jar_is_small_and_has_the_class_and_its_source():
    assert log_store_jar().stat().st_size < 20_000
    assert set(entries(".class")) == {S3_LOG_STORE.replace(".", "/") + ".class"}
    sources = {str(path.relative_to(SOURCES)): path.read_bytes() for path in SOURCES.rglob("*.java")}
    assert entries(".java") == sources, AGAIN


def test_launcher_and_driver_mean_the_same_class():
    assert sink_place._OWN_STORE == S3_LOG_STORE


def test_the_class_is_what_the_compiler_makes_of_the_source(tmp_path):
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("no javac: only the runtime of Java is installed")
    built_by = re.search(r"Build-Jdk-Spec: (\d+)", entries("MANIFEST.MF")["META-INF/MANIFEST.MF"].decode())
    said = subprocess.run([javac, "-version"], capture_output=True, text=True, check=True).stdout
    if not re.match(rf"javac {built_by[1]}\b", said):
        pytest.skip(f"{said.strip()}: another compiler makes other bytes than Java {built_by[1]}")
    jars = [*bundled_spark_home().glob("jars/hadoop-client-api-*.jar"), *default_cache_dir().glob("jars/*.jar")]
    classpath = ":".join(map(str, jars))
    sources = [str(path) for path in SOURCES.rglob("*.java")]
    flags = ["--release", "11", "-g", "-encoding", "UTF-8", "-proc:none", "-d", str(tmp_path)]
    subprocess.run([javac, *flags, "-cp", classpath, *sources], check=True, capture_output=True)
    made = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*.class")}
    assert entries(".class") == made, AGAIN
