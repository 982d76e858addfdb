"""What runs on the driver: the application that spark-submit starts, and the zip of modules that is shipped with it.

Python can run the zip as well, where a cluster starts the driver from one file.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path
from typing import Final

from airflow_provider_fds.spark.installation.cache import SparkSetupError, default_cache_dir, make_folder

_PACKAGE: Final = Path(__file__).resolve().parents[2]

#: The rooms of ``spark/`` that run on the driver.
_ROOMS: Final = ("runtime", "sink_log", "fence", "writers", "writers/rows", "writers/postgres", "application")

#: The driver's modules. The first pages of the rooms, and of the packages not among them, are left empty in the zip.
_MODULES: Final = (
    "sinks/*.py",
    "batch/checked_json.py",
    "batch/column_fit.py",
    "batch/column_meaning.py",
    "batch/fleet_spec.py",
    "batch/next_job.py",
    "batch/report.py",
    "batch/sink/[!_]*.py",
    "batch/spec.py",
    "batch/table_writes.py",
    "batch/transactions.py",
    "batch/version_ranges.py",
    "credentials.py",
    "durations.py",
    "fault_points.py",
    "reasons.py",
    "schemes.py",
    "sizes.py",
    "table_names.py",
    "type_widening.py",
    "z85.py",
    "spark/__init__.py",
    *(f"spark/{room}/[!_]*.py" for room in _ROOMS),
)
#: What Python runs of the zip.
_MAIN: Final = b"""import sys

from airflow_provider_fds.spark.application.job import main

sys.exit(main(sys.argv[1:]))
"""
_EMPTY: Final = ("", "batch/", "batch/sink/", "sinks/", "spark/", *(f"spark/{room}/" for room in _ROOMS))


def job_file() -> Path:
    """Return the application that spark-submit starts."""
    return _PACKAGE / "spark" / "application" / "job.py"


def driver_zip(cache_dir: Path | None = None) -> Path:
    """Return the zip for ``--py-files``, written once per content.

    The same modules give the same bytes, and the name contains their digest. Two versions of FDS on one machine, or a
    cluster that caches files by name, therefore cannot mix them up. A file of that name with other bytes is replaced.

    Raises:
        SparkSetupError: The cache cannot be written to.
    """
    data = _zip()
    cache = default_cache_dir() if cache_dir is None else cache_dir
    folder = cache / "driver"
    path = folder / f"fds-driver-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        make_folder(cache)
        make_folder(folder)
        if path.is_file() and not path.is_symlink() and path.read_bytes() == data:
            return path
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as e:
        raise SparkSetupError(
            f"cannot write the driver's modules to {path} ({e}): set FDS_CACHE_DIR to a writable folder"
        ) from e
    return path


def _zip() -> bytes:
    files = {f"{_PACKAGE.name}/{package}__init__.py": b"" for package in _EMPTY}
    for module in (path for pattern in _MODULES for path in _PACKAGE.glob(pattern)):
        files[module.relative_to(_PACKAGE.parent).as_posix()] = module.read_bytes()
    files["__main__.py"] = _MAIN
    buffer = io.BytesIO()
    # stored, not deflated: compressed bytes differ between versions of zlib
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, data)
    return buffer.getvalue()
