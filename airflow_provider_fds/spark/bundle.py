"""What is shipped to the driver: the application file, and a zip of the modules it imports. Standard library only."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path
from typing import Final

from airflow_provider_fds.spark.install import SparkSetupError, default_cache_dir, only_trusted
from airflow_provider_fds.spark.trusted_cache import make_folder

_PACKAGE: Final = Path(__file__).resolve().parent.parent

#: The modules of the driver. Package files that are not named are left empty there.
_MODULES: Final = (
    "batch/own_job.py",
    "batch/spec.py",
    "credentials.py",
    "fault_points.py",
    "schemes.py",
    "sinks/__init__.py",
    "sinks/base.py",
    "sinks/delta.py",
    "sinks/expression.py",
    "sinks/foreach.py",
    "sinks/merge.py",
    "sinks/options.py",
    "spark/__init__.py",
    "spark/batch_rows.py",
    "spark/failures.py",
    "spark/fence.py",
    "spark/files.py",
    "spark/empty_append.py",
    "spark/foreach_batch.py",
    "spark/foreach_fence.py",
    "spark/foreach_tables.py",
    "spark/history.py",
    "spark/identity.py",
    "spark/job.py",
    "spark/listed_rows.py",
    "spark/log_files.py",
    "spark/merge_sql.py",
    "spark/own_job.py",
    "spark/removal.py",
    "spark/rows.py",
    "spark/session_conf.py",
    "spark/settings.py",
    "spark/sink_columns.py",
    "spark/sink_delta.py",
    "spark/sink_foreach.py",
    "spark/sink_merge.py",
    "spark/sink_others.py",
    "spark/sink_place.py",
    "spark/sink_replace.py",
    "spark/sql.py",
    "spark/user_code.py",
    "spark/versions.py",
)
_PACKAGES: Final = ("", "batch/", "sinks/", "spark/")


def job_file() -> Path:
    """Return the application that spark-submit starts."""
    return _PACKAGE / "spark" / "job.py"


def driver_zip(cache_dir: Path | None = None) -> Path:
    """Return the zip for ``--py-files``, written once per content.

    The same modules give the same bytes, and the name carries their digest: two versions of FDS on one machine,
    or a cluster that caches files by name, cannot mix them up. A file of that name with other bytes is replaced.

    Raises:
        SparkSetupError: the cache cannot be written.
    """
    data = _zip()
    cache = default_cache_dir() if cache_dir is None else cache_dir
    folder = cache / "driver"
    path = folder / f"fds-driver-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with only_trusted():
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
    files = {f"{package}__init__.py": b"" for package in _PACKAGES}
    files.update({module: (_PACKAGE / module).read_bytes() for module in _MODULES})
    buffer = io.BytesIO()
    # stored, not deflated: compressed bytes differ between versions of zlib
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(f"airflow_provider_fds/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, data)
    return buffer.getvalue()
