"""What a sink says of the batches in it: the commits of a Delta log and their metadata, the tables of a database.

``sink_account`` and ``table_account`` are what everybody asks about a Delta log, ``postgres_account`` about a database.
Shipped to the driver: standard library only, Python 3.9 syntax. May import the modules of ``batch/``, but not
``manifest/``. What a commit of another writer means, and what streams of one sink do to each other, belongs here.
"""
