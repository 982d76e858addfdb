"""What a commit is to a stream: data, nothing, something to skip, or a reason to stop.

``classify`` decides by the operation and the actions of a whole commit, ``barrier`` by its change of the schema,
``change_feed`` finds the files of a change data feed. May import ``options/`` and ``filters/``. A rule about which
commits a stream passes belongs here.
"""
