"""What a sink says of the batches in it: the commits of a Delta log and their metadata, the tables of a database.

``sink_account`` says which commits a Delta table still consists of, ``loaded_streams`` what streams have loaded into
it, ``table_account`` what one write of a function has; ``postgres_account`` is the account of a database.
Shipped to the driver: standard library only, Python 3.9 syntax. May import the modules of ``batch/``, but not
``manifest/``. What a commit of another writer means, and what streams of one sink do to each other, belongs here.
"""
