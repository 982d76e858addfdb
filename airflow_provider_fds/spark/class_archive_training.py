"""The job whose classes go into the archive: Delta tables made, read, appended to and merged into, as batches are.

``class_archive_training.py <folder>``. Standard library and pyspark, Python 3.9 syntax.
"""

import sys

from pyspark.sql import SparkSession


def main(folder: str) -> None:
    """Do a little of all that a batch does; end in an orderly way, since the archive is written at the JVM's end."""
    spark = SparkSession.builder.appName("fds-class-archive").getOrCreate()
    rows = spark.range(100).selectExpr(
        "id", "cast(id as string) as text", "cast(id as double) as number", "timestamp_seconds(id) as at", "id % 2 as p"
    )
    source, sink = f"{folder}/source", f"{folder}/sink"
    for _ in range(2):
        rows.write.format("delta").mode("append").partitionBy("p").save(source)
    for version in range(2):
        read = spark.read.format("delta").load(source).where("id >= 0").drop("p")
        writer = read.write.format("delta").mode("append").option("txnAppId", "fds").option("txnVersion", str(version))
        writer.option("userMetadata", "{}").save(sink)
    spark.read.format("delta").load(source).drop("p").dropDuplicates(["id"]).createOrReplaceTempView("news")
    spark.sql(
        f"MERGE INTO delta.`{sink}` t USING news s ON t.id = s.id AND t.at = s.at AND s.id < 0 "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()
    spark.sql(f"DESCRIBE HISTORY delta.`{sink}`").collect()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
