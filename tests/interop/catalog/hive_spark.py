"""A Spark whose catalog is a Hive metastore, in a process of its own: another session of the tests has another catalog.

Argument: a folder. The first line of the standard input is the URI of the metastore, which starts meanwhile, each
other line a statement in JSON; each line of the output is its rows, or the first line of its error.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from airflow_provider_fds.spark.installation.jars import delta_jars
from tests.interop import quick_spark


def main() -> None:
    (folder,) = sys.argv[1:]
    settings = {
        "spark.jars": ",".join(map(str, delta_jars())),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "hive",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{quick_spark.JVM} -Dderby.system.home={folder}",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.local.dir": f"{folder}/local",
        **quick_spark.server_settings(),
    }
    builder = SparkSession.builder.master("local[2]").appName("fds-hive")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    # Spark connects to it with the first statement
    spark.sparkContext._jsc.hadoopConfiguration().set("hive.metastore.uris", sys.stdin.readline().strip())
    for line in sys.stdin:
        try:
            answer = {"rows": [list(row) for row in spark.sql(json.loads(line)).collect()]}
        except Exception as error:  # noqa: BLE001 - the test shows it
            answer = {"error": str(error).split("\n", 1)[0]}
        print("answer " + json.dumps(answer, default=str), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
