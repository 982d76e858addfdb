"""What ``postgres_writer`` stands on: columns of a table, rows as text for COPY, the SQL of a merge.

Shipped to the driver. May import ``rows/``. A type of PostgreSQL, or how its values are written, belongs here; the
transaction with its account is in the writer.
"""
