"""A fleet: many streams that one task loads in one Spark application. Imports neither Airflow nor Spark.

``value`` has what a stream of a fleet declares, ``table_pattern`` what a pattern does, ``streams_file/`` the same as
keys of a file. ``session`` is one run; ``jobs`` hands it to the driver (``batch/fleet_spec.py``), where
``spark/application/fleet_schedule.py`` runs the streams side by side and holds their time limits.
"""
