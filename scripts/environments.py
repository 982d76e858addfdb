"""Python environments beside the project's own, each made once, and again when its pins change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent


def uv(*arguments: str) -> None:
    """Run uv with the package index that pip has."""
    asked = subprocess.run(
        [ROOT / "scripts" / "package_index.sh"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    index = {"UV_DEFAULT_INDEX": asked.stdout.strip()} if asked.stdout.strip() else {}
    subprocess.run([str(Path(sys.executable).with_name("uv")), *arguments], env={**os.environ, **index}, check=True)


def pip_install(python: Path, *arguments: str) -> None:
    """Install into the environment of a Python."""
    constraints = ["--build-constraints", str(ROOT / "requirements" / "build.txt")]
    uv("pip", "install", "--quiet", "--python", str(python), *constraints, *arguments)


def environment(folder: Path, install: Callable[[Path], None], wanted: str, python: str = sys.executable) -> Path:
    """Return the Python of an environment, which is made if it is not there as wanted.

    Args:
        folder: Where it is.
        install: Installs into the environment of a Python.
        wanted: What it is made from, as text.
        python: The Python that it is made of.
    """
    own, made_from = folder / "bin" / "python", folder / "made-from.txt"
    if not made_from.exists() or made_from.read_text() != wanted:
        print(f"making {folder}", flush=True)
        uv("venv", "--quiet", "--clear", "--python", python, str(folder))
        install(own)
        made_from.write_text(wanted)
    return own


def pinned(folder: Path, requirements: str, *, with_package: bool, python: str = sys.executable) -> Path:
    """Return the Python of an environment with a file of ``requirements/``, and with this package if wanted."""
    file = ROOT / "requirements" / f"{requirements}.txt"

    def install(own: Path) -> None:
        pip_install(own, "--require-hashes", "--compile-bytecode", "-r", str(file))
        if with_package:
            pip_install(own, "--no-deps", "--editable", str(ROOT))

    return environment(folder, install, f"{ROOT}\n{file.read_text()}", python)
