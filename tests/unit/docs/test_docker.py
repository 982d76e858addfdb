"""The files for Docker name only what is there. No Docker is needed, and none is run."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

DOCKER = Path(__file__).parents[3] / "docker"


def test_every_service_is_built_from_the_dockerfile_and_uses_declared_volumes():
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))

    assert set(compose["services"]) == {"spark-master", "spark-worker", "airflow"}
    for service in compose["services"].values():
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        named = {volume.split(":")[0] for volume in service["volumes"] if not volume.startswith(".")}
        assert named <= set(compose["volumes"])
        assert set(service.get("depends_on", [])) <= set(compose["services"])


def test_every_file_the_image_copies_is_there():
    for sources in re.findall(r"^COPY (.+) \S+$", (DOCKER / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE):
        for source in sources.split():
            assert (DOCKER.parent / source).exists(), source
