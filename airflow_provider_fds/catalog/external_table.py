"""What Spark and Delta write to a metastore about an external table. Its columns are in its log only."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

#: Ends the location of a table whose folder is only in the serde's ``path``.
PLACEHOLDER: Final = "-__PLACEHOLDER__"
PARAMETERS: Final = {
    "EXTERNAL": "TRUE",
    "spark.sql.sources.provider": "delta",
    "spark.sql.sources.schema": '{"type":"struct","fields":[]}',
    "spark.sql.partitionProvider": "catalog",
}
TABLE_TYPE: Final = "EXTERNAL_TABLE"
#: The one column: name, type, comment.
COLUMN: Final = ("col", "array<string>", "from deserializer")
SERDE: Final = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
INPUT_FORMAT: Final = "org.apache.hadoop.mapred.SequenceFileInputFormat"
OUTPUT_FORMAT: Final = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"


def serde_parameters(location: str) -> dict[str, str]:
    """Return the parameters of the serde for the folder at a canonical URI, which a metastore has as plain text."""
    return {"serialization.format": "1", "path": unquote(location)}
