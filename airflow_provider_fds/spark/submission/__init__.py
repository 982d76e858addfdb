"""A spark-submit: its arguments, properties and keys, the zip of the driver's modules, the class archive, the process.

Runs on the worker. May import ``runtime/`` and ``installation/``. What a Spark application is started with belongs
here.
"""
