"""What is decided about a stream: entries, their fold, and the log in staging that holds them (docs/design/ledger.md).

Here are the values: what entries record, and the state that results. ``entries/`` has the rules, ``staging/`` the log.
The values and the rules are pure; ``staging/log.Ledger`` does the I/O.
"""
