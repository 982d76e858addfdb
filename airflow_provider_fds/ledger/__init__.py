"""What is decided about a stream: entries, their fold, and the log in staging that holds them (LEDGER.md).

``decide`` and ``evolve`` are pure; ``Ledger`` does the input and output around them.
"""
