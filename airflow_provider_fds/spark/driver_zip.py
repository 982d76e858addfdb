"""What runs on the driver: the application that spark-submit starts, and the zip of modules that is shipped with it."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path
from typing import Final

from airflow_provider_fds.spark.cache import SparkSetupError, default_cache_dir, make_folder

_PACKAGE: Final = Path(__file__).resolve().parent.parent

#: The driver's modules. Sinks and their writers are found by name patterns, so a new one needs no list entry. Package
#: files that are not among them are left empty in the zip.
_MODULES: Final = (
    "sinks/*.py",
    "spark/*_writer.py",
    "batch/checked_json.py",
    "batch/commit_metadata.py",
    "batch/fleet_spec.py",
    "batch/report.py",
    "batch/spec.py",
    "batch/user_job.py",
    "batch/version_ranges.py",
    "credentials.py",
    "durations.py",
    "fault_points.py",
    "schemes.py",
    "sizes.py",
    "spark/__init__.py",
    "spark/advice.py",
    "spark/batch_attempt.py",
    "spark/batch_rows.py",
    "spark/failures.py",
    "spark/fence.py",
    "spark/files.py",
    "spark/driver_versions.py",
    "spark/empty_append.py",
    "spark/foreach_batch.py",
    "spark/foreach_fence.py",
    "spark/foreach_tables.py",
    "spark/fleet_job.py",
    "spark/fleet_schedule.py",
    "spark/history.py",
    "spark/identity.py",
    "spark/job.py",
    "spark/job_run.py",
    "spark/log_files.py",
    "spark/merge_sql.py",
    "spark/user_job.py",
    "spark/progress.py",
    "spark/registration.py",
    "spark/removal.py",
    "spark/rows.py",
    "spark/settings.py",
    "spark/sink_columns.py",
    "spark/sink_others.py",
    "spark/sink_place.py",
    "spark/sink_transactions.py",
    "spark/sql.py",
    "spark/user_code.py",
    "spark/versions.py",
    "spark/writers.py",
)
_EMPTY: Final = ("", "batch/", "sinks/", "spark/")


def job_file() -> Path:
    """Return the application that spark-submit starts."""
    return _PACKAGE / "spark" / "job.py"


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
    files = {f"{package}__init__.py": b"" for package in _EMPTY}
    for module in (path for pattern in _MODULES for path in _PACKAGE.glob(pattern)):
        files[module.relative_to(_PACKAGE).as_posix()] = module.read_bytes()
    buffer = io.BytesIO()
    # stored, not deflated: compressed bytes differ between versions of zlib
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(f"airflow_provider_fds/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, data)
    return buffer.getvalue()
