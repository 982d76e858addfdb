"""Rows on their way into a sink, whichever it is: prepared, tested, rejected, fitted to its columns, merged by key.

Shipped to the driver. May import no writer. What is done to rows before a sink sees them belongs here.
"""
