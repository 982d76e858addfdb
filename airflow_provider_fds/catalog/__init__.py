"""Catalogs: what tells where a table of a name is, with which credentials, and which commits it has.

One module for each kind of catalog, which is imported when a connection of that kind is used: its client is an optional
extra. :mod:`.names` reads names, :mod:`.table` has what every catalog implements, and the only way into the rest of the
code: :class:`.table.CatalogPlaces`, behind the seam of ``places.py``. :mod:`.metastore_table` reads the parameters of a
table in Hive and Glue, :mod:`.unity_answers` the properties of one in Unity Catalog. :mod:`.log_view` shows the log of
a table whose newest commits only its catalog knows.

May import ``delta``, ``credentials``, ``errors``, ``places``; knows neither Airflow nor Spark. A new catalog is a
module here with a class that has ``load`` and ``tables``, and a line in ``registry.py``; ``hooks/catalogs.py`` says
which connection selects it. ``table_names.py`` of the package says how names are written.
"""
