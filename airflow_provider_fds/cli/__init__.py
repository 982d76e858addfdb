"""The command line ``fds``: plans, runs and looks at streams without an Airflow database."""
