"""The command line ``fds``: plans, runs and inspects streams without an Airflow database."""
