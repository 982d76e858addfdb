"""Write the JSON Schema of ``streams.yaml`` into the package, from the keys and options of the code."""

from __future__ import annotations

import json
from pathlib import Path

from airflow_provider_fds.fleet.streams_file.schema import SCHEMA_FILE, streams_schema


def text() -> str:
    """Return the schema as it is published."""
    return json.dumps(streams_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    path = Path(__file__).resolve().parents[1] / "airflow_provider_fds" / "fleet" / SCHEMA_FILE
    path.write_text(text(), encoding="utf-8")
