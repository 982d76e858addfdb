"""The file of streams, ``streams.yaml``: its YAML with lines and columns, its keys, what must hold between streams.

``file`` reads it, ``schema`` makes the JSON Schema of it. May import the values of ``fleet/``. Another key belongs
here.
"""
