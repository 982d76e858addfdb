"""Where Spark runs: one module per backend, found by ``registry.BACKENDS`` by the type of the Airflow connection.

``spark_submit`` starts whatever master the connection names, ``k8s://`` and YARN too. Another way to start an
application, or a service that runs it, is another module here.

A backend says how Spark ended; reports and the sink say what it did, so that a backend cannot make a batch count as
loaded.
"""
