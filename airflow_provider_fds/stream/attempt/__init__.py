"""The results of Spark's attempts at a batch, as read from staging: reports, errors, the result of a run.

May import ``sink_record/``, since a report counts only if the sink has the batch. What an attempt may report, and
what an error of it means for the run, belongs here.
"""
