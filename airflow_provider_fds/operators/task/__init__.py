"""What a DAG file needs to declare a task: checks of its arguments, how it waits, its Spark connection.

Imported in each parse of a DAG file, so it imports little. May import ``lineage/``. An argument that several operators
have belongs here.
"""
