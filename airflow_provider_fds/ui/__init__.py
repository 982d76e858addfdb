"""The page "Delta streams" in Airflow's UI: the plugin, its API, and the files of the page in ``static``."""
