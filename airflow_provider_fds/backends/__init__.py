"""Where Spark runs: one module per backend, found by ``registry.BACKENDS`` by the type of the Airflow connection.

``spark_submit`` starts whatever master the connection names, ``k8s://`` and YARN too; ``cluster_driver`` waits for a
driver in a cluster, which ``spark/clusters/`` starts, looks at and stops. Another type of connection, as that of a
service that runs Spark, is another module here.

A backend says how Spark ended; reports and the sink say what it did, so that a backend cannot make a batch count as
loaded.
"""
