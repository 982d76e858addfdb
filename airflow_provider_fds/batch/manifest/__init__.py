"""The manifest of a batch: a small Delta table of the source's own files, which Spark reads, and how it is written.

``publish`` writes it into staging, ``manifest`` its log; the driver reads the result with Delta and imports nothing
here. May import the modules of ``batch/``, but not ``sink/``. What a manifest takes over from its source (files,
schema, protocol) belongs here.
"""
