"""The Spark, the Java and the JARs of this machine: what is installed, what is fetched, and where it is kept.

Runs on the worker, where a Spark is started. May import ``runtime/`` only. Another version of Spark, or another place
to find it, belongs here.
"""
