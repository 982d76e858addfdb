"""Which rows and files a filter keeps: ``where``, and what the statistics of a file prove.

``predicate`` has the syntax, ``filter_column`` the values of a column. May import nothing else of ``source/``. Another
operator, type or statistic belongs here.
"""
