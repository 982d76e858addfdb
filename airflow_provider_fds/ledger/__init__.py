"""What is decided about a stream: entries, their fold, and the log in staging that holds them (docs/design/ledger.md).

``decide`` and ``evolve`` are pure; ``Ledger`` does the input and output around them.
"""
