"""Files of a Delta log that Spark reads: many commits at once, and the transactions in a log checkpoint.

Reading with Spark works over spark-submit and Spark Connect alike, and in parallel. A few commits are cheaper to read
as plain files. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

#: Prefix of the application ids of FDS transactions, of any stream.
FDS_TRANSACTIONS = "fds:"

_CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint"
    r"(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.[0-9a-fA-F-]{36})?\.(?:parquet|json)"
)
_KEPT_ACTIONS = '^ *[{] *"(commitInfo|txn|metaData|protocol)"'
_REMOVED_ROWS = '^ *[{] *"remove".*"dataChange" *: *true'
#: Stands for all ``remove`` actions of a commit.
_ONE_REMOVE = '{"remove":{"dataChange":true}}'


@dataclass(frozen=True)
class LogCheckpoint:
    """A complete checkpoint of the log: the table's state at ``version``, in files of ``_delta_log``."""

    version: int
    files: Tuple[str, ...]


def newest_checkpoint(names: Iterable[str], newest: int) -> Optional[LogCheckpoint]:
    """Return the newest complete checkpoint among the names of a log's files, or ``None``.

    Args:
        names: Names of the files of ``_delta_log``.
        newest: Checkpoints of later versions are ignored.
    """
    whole: Dict[int, str] = {}
    parts: Dict[Tuple[int, int], Set[str]] = {}
    for name in sorted(names):
        match = _CHECKPOINT.fullmatch(name)
        if match is None or int(match["version"]) > newest:
            continue
        if match["parts"] is None:
            whole[int(match["version"])] = name
        else:
            parts.setdefault((int(match["version"]), int(match["parts"])), set()).add(name)
    found = [LogCheckpoint(version, (name,)) for version, name in whole.items()]
    found += [LogCheckpoint(v, tuple(sorted(files))) for (v, count), files in parts.items() if len(files) == count]
    return max(found, key=lambda checkpoint: checkpoint.version, default=None)


def checkpoint_transactions(spark: Any, folder: str, checkpoint: LogCheckpoint) -> Dict[str, int]:
    """Return the transactions of FDS in a checkpoint, by application id, with one Spark job.

    In a V2 checkpoint they are in the file that names the sidecars, never in a sidecar.
    """
    paths = [_escaped(f"{folder}/{name}") for name in checkpoint.files]
    if checkpoint.files[0].endswith(".json"):
        lines = spark.read.text(paths).where("""value RLIKE '^ *[{] *"txn"'""").collect()
        found = [json.loads(line["value"])["txn"] for line in lines]
        return {t["appId"]: int(t["version"]) for t in found if t["appId"].startswith(FDS_TRANSACTIONS)}
    actions = spark.read.parquet(*paths)
    if "txn" not in actions.columns:
        return {}
    rows = actions.where(f"txn.appId LIKE '{FDS_TRANSACTIONS}%'").select("txn.appId", "txn.version").collect()
    return {row["appId"]: int(row["version"]) for row in rows}


def commit_contents(spark: Any, folder: str, versions: Sequence[int]) -> Dict[int, bytes]:
    """Return the relevant lines of many commits, as if their files had been read, with one Spark job.

    The actions are whole lines of the files. ``add`` is omitted, and one ``remove`` stands for all that remove rows.
    """
    paths = [_escaped(f"{folder}/{version:020}.json") for version in versions]
    rows = (
        spark.read.text(paths)
        .selectExpr(
            "right(input_file_name(), 25) AS name",
            f"CASE WHEN value RLIKE '{_REMOVED_ROWS}' THEN '{_ONE_REMOVE}' ELSE value END AS line",
            f"value RLIKE '{_KEPT_ACTIONS}' OR value RLIKE '{_REMOVED_ROWS}' AS matters",
        )
        .where("matters")
        .select("name", "line")
        .distinct()
        .collect()
    )
    lines: Dict[int, List[str]] = {version: [] for version in versions}
    for row in rows:
        lines[int(row["name"][:20])].append(row["line"])
    return {version: "\n".join(of_version).encode() for version, of_version in lines.items()}


def _escaped(path: str) -> str:
    """Return a path with glob characters escaped, so that Spark's readers take it literally."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)
