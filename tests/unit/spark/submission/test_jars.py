"""The JARs in the package are built from the source in ``java/``."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_fds.spark.installation.cache import default_cache_dir
from airflow_provider_fds.spark.installation.install import bundled_spark_home
from airflow_provider_fds.spark.runtime.connect_shortcuts import SHORTCUTS
from airflow_provider_fds.spark.sink_log import sink_place
from airflow_provider_fds.spark.submission.connect_service import shortcuts_jar
from airflow_provider_fds.spark.submission.object_store import S3_LOG_STORE, log_store_jar

JAVA = Path(__file__).parents[4] / "java"


@dataclass(frozen=True)
class Jar:
    path: Path
    folder: Path
    main: str
    release: str
    compiled_with: str

    @property
    def sources(self):
        return self.folder / "src" / "main" / "java"

    @property
    def again(self):
        # not in the folder where Spark looks for packages, too
        build = f"mvn -f {self.folder.relative_to(JAVA.parent)} package -Dmaven.repo.local=$(mktemp -d)"
        return f"build it again: {build} && cp {self.folder}/target/{self.path.name} {self.path.parent}"

    def entries(self, suffix):
        with zipfile.ZipFile(self.path) as jar:
            return {name: jar.read(name) for name in jar.namelist() if name.endswith(suffix)}


JARS = [
    Jar(log_store_jar(), JAVA, S3_LOG_STORE, "11", "hadoop-client-api-*.jar"),
    Jar(shortcuts_jar(), JAVA / "connect", SHORTCUTS, "17", "*.jar"),
]


@pytest.fixture(params=JARS, ids=lambda jar: jar.path.name)
def jar(request):
    return request.param


def test_a_jar_is_small_and_has_the_class_and_its_source(jar):
    assert jar.path.stat().st_size < 20_000
    assert set(jar.entries(".class")) == {jar.main.replace(".", "/") + ".class"}
    sources = {str(path.relative_to(jar.sources)): path.read_bytes() for path in jar.sources.rglob("*.java")}
    assert jar.entries(".java") == sources, jar.again


def test_launcher_and_driver_mean_the_same_class():
    assert sink_place._OWN_STORE == S3_LOG_STORE


def test_the_class_is_what_the_compiler_makes_of_the_source(jar, tmp_path):
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("no javac: only the runtime of Java is installed")
    built_by = re.search(r"Build-Jdk-Spec: (\d+)", jar.entries("MANIFEST.MF")["META-INF/MANIFEST.MF"].decode())
    said = subprocess.run([javac, "-version"], capture_output=True, text=True, check=True).stdout
    if not re.match(rf"javac {built_by[1]}\b", said):
        pytest.skip(f"{said.strip()}: another compiler makes other bytes than Java {built_by[1]}")
    jars = [*bundled_spark_home().glob(f"jars/{jar.compiled_with}"), *default_cache_dir().glob("jars/*.jar")]
    sources = [str(path) for path in jar.sources.rglob("*.java")]
    flags = ["--release", jar.release, "-g", "-encoding", "UTF-8", "-proc:none", "-d", str(tmp_path)]
    subprocess.run([javac, *flags, "-cp", ":".join(map(str, jars)), *sources], check=True, capture_output=True)
    made = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*.class")}
    assert jar.entries(".class") == made, jar.again
