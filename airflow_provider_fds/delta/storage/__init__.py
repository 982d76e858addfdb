"""Bytes in a table's folder: list, read, HEAD, put if absent; one module for each kind of store.

``storage`` has the interface, ``open`` chooses the store of a URI. May import nothing else of ``delta/``. Another
store, a retry of a request or the wording of a store's error belongs here.
"""
