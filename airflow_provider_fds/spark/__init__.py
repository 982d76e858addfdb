"""What runs on Spark's side of the border, and how it is started.

``job`` is the application; ``sink_delta``, ``sink_place``, ``history``, ``failures``, ``files`` and ``settings`` are
its parts and travel with it as a zip: standard library and pyspark only, Python 3.9 syntax, Spark 3.5 API.
``install``, ``bundle``, ``submit`` and ``launch`` stay behind: they find Spark, Java and Delta's JARs, put the command
together, and run it.
"""
