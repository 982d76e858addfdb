"""The source options: names, values, ranges, limits of a batch, and the policy for changes of the schema.

``options.SourceOptions`` is the value that a stream holds. DAG files import it, so it imports only ``filters/`` and no
module that reads a log. Another option or limit belongs here.
"""
