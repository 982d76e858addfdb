"""Where Spark runs: one module per backend, found by ``registry.BACKENDS`` by the type of the Airflow connection."""
