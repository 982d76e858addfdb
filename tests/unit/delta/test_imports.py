from __future__ import annotations

import pkgutil
import subprocess
import sys

from airflow_provider_fds import delta

MODULES = sorted(module.name for module in pkgutil.walk_packages(delta.__path__, f"{delta.__name__}."))


def imported_after(code):
    script = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(result.stdout.split())


def test_no_module_of_the_package_imports_pyarrow_airflow_or_spark():
    code = "\n".join(f"import {name}" for name in MODULES)
    assert not imported_after(code) & {"pyarrow", "airflow", "pyspark", "deltalake"}


def test_reading_a_log_on_disk_needs_neither_pyarrow_nor_obstore(log_builder):
    log_builder.create()
    log_builder.append()
    code = (
        "from airflow_provider_fds.delta.storage.open import open_storage\n"
        "from airflow_provider_fds.delta.reader.log import DeltaLog\n"
        f"log = DeltaLog(open_storage({str(log_builder.root)!r}))\n"
        "assert log.latest() == 1 and log.state_at(1).version == 1 and len(list(log.commits(0, 1))) == 2\n"
    )
    assert not imported_after(code) & {"pyarrow", "obstore"}
