"""Invariant 7: parsing a DAG file reads at most its file of streams, and imports neither pyspark nor pyarrow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = sorted((Path(__file__).parents[2] / "airflow_provider_fds" / "example_dags").glob("*.py"))

_PARSE = '''
import sys
import airflow
FORBIDDEN = ("socket.connect", "socket.getaddrinfo", "sqlite3.connect", "subprocess.Popen", "os.listdir", "os.scandir")
seen = None

def is_of_airflow(args):
    """Airflow 3.1's timetables describe a cron expression each time they are made, from a file of that library."""
    return airflow.__version__.startswith("3.1.") and "/cron_descriptor/locale/" in str(args[0])

def is_declared(args):
    """The file of streams that a DAG file names."""
    return str(args[0]).endswith("_streams.yaml")

def watch(event, args):
    if seen is not None and (event in FORBIDDEN or event == "open" and not (is_of_airflow(args) or is_declared(args))):
        seen.append((event, str(args[:1])))

sys.addaudithook(watch)
codes = [(file, compile(open(file).read(), file, "exec")) for file in sys.argv[1:]]
# the first time Airflow loads its own modules; what comes again every time is ours
for turn in range(2):
    seen = [] if turn else None
    for file, code in codes:
        exec(code, {"__name__": "parsed", "__file__": file})
found, seen = seen, None
print("io", found)
print("heavy", sorted({"pyspark", "pyarrow", "pandas", "numpy", "deltalake", "boto3"} & set(sys.modules)))
'''


def test_parsing_the_examples_does_no_io_and_imports_nothing_heavy(airflow_home):
    command = [sys.executable, "-c", _PARSE, *map(str, EXAMPLES)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "io []" in ran.stdout
    assert "heavy []" in ran.stdout


def test_the_package_root_imports_neither_airflow_nor_anything_heavy():
    code = (
        "import sys, airflow_provider_fds; "
        "print(sorted({'airflow', 'pyspark', 'pyarrow', 'obstore', 'msgspec'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
