"""The reason codes of errors: stable names for what went wrong, for alerts, callbacks and scripts.

A code keeps its meaning once it is released. Its comment says what it means and what to do, in Markdown with links of
the page ``docs/errors.md``, whose table is made of it (``scripts/reason_table.py``).
Ships to the driver: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from enum import Enum


class Reason(str, Enum):  # noqa: UP042 - the driver may run Python 3.9
    """Why a task or a command failed. A code's class of error says whether a retry can help, and the exit code."""

    __str__ = str.__str__

    #: a bug in FDS
    #: To do: report it, with the output of `FDS_TRACEBACK=1`
    INTERNAL_ERROR = "INTERNAL_ERROR"

    # the request cannot work
    #: an argument or a setting is invalid
    #: To do: correct what the message names
    INVALID_CONFIGURATION = "INVALID_CONFIGURATION"
    #: an option of stream, sink or storage is unknown or invalid
    #: To do: correct it, see [options](options.md) and [sinks](sinks.md)
    INVALID_OPTION = "INVALID_OPTION"
    #: this version of FDS cannot use a position
    #: To do: use the position that FDS or Delta wrote, unchanged
    INVALID_OFFSET = "INVALID_OFFSET"
    #: a URI is malformed, or its scheme is unknown
    #: To do: correct it
    INVALID_URI = "INVALID_URI"
    #: a URI contains a user, a query or a fragment
    #: To do: put credentials into the connection or the environment
    URI_HAS_CREDENTIALS = "URI_HAS_CREDENTIALS"
    #: an Airflow connection does not exist
    #: To do: create it, or correct its name
    CONNECTION_NOT_FOUND = "CONNECTION_NOT_FOUND"
    #: a connection has the wrong type, no host, or credentials that FDS cannot use
    #: To do: correct it
    CONNECTION_UNUSABLE = "CONNECTION_UNUSABLE"
    #: the staging folder is missing, not shared, overlaps a table, or its store has no write-once
    #: To do: set `[fds] staging` to a folder that every worker and Spark can reach
    STAGING_UNUSABLE = "STAGING_UNUSABLE"
    #: the checkpoint cannot be written from here
    #: To do: run the command where the message says
    CHECKPOINT_UNUSABLE = "CHECKPOINT_UNUSABLE"
    #: Spark is missing, cannot start, or has settings that contradict a batch
    #: To do: see [what to install](backends.md#what-to-install)
    SPARK_UNUSABLE = "SPARK_UNUSABLE"
    #: the Spark Connect server ignores what FDS relies on: transactions, Delta's log, or settings
    #: To do: use a server of Apache Spark with Delta, see [Spark Connect](backends.md#spark-connect)
    SPARK_CONNECT_UNFAITHFUL = "SPARK_CONNECT_UNFAITHFUL"
    #: Airflow is older than FDS supports
    #: To do: upgrade it, see [compatibility](compatibility.md)
    AIRFLOW_TOO_OLD = "AIRFLOW_TOO_OLD"
    #: there is no Delta table at the URI
    #: To do: correct the URI, or create the table
    TABLE_NOT_FOUND = "TABLE_NOT_FOUND"
    #: a name is not one of the catalog's, or has too few or too many parts
    #: To do: correct it, see [tables by name](catalogs.md)
    CATALOG_NAME_INVALID = "CATALOG_NAME_INVALID"
    #: the catalog has no table of this name
    #: To do: correct the name; if the table was renamed, use the new name
    CATALOG_TABLE_NOT_FOUND = "CATALOG_TABLE_NOT_FOUND"
    #: the catalog has the table, but FDS cannot read it: it is a view, not Delta, or has no folder
    #: To do: follow the message, see [tables by name](catalogs.md)
    CATALOG_TABLE_UNREADABLE = "CATALOG_TABLE_UNREADABLE"
    #: the catalog has the table, or could have it, but FDS cannot write it: only the catalog may, or it is elsewhere
    #: To do: follow the message, see [sinks by name](catalogs.md#sinks-by-name)
    CATALOG_TABLE_UNWRITABLE = "CATALOG_TABLE_UNWRITABLE"
    #: the staging folder has no stream of this name
    #: To do: check the name and `--staging`
    STREAM_NOT_FOUND = "STREAM_NOT_FOUND"
    #: an option for new streams was given to one that has begun
    #: To do: use another name, or omit the option
    STREAM_ALREADY_BEGUN = "STREAM_ALREADY_BEGUN"
    #: the start is not the one that the stream began with, and `on_changed_start="fail"`
    #: To do: set it back, or use `fds rewind`
    START_CHANGED = "START_CHANGED"
    #: the table does not have the start or the end of the stream
    #: To do: choose one that the message names
    START_NOT_AVAILABLE = "START_NOT_AVAILABLE"
    #: the live stream has not begun, or leaves nothing to backfill
    #: To do: give the [backfill](backfill.md) its own end
    BACKFILL_NOT_AVAILABLE = "BACKFILL_NOT_AVAILABLE"
    #: the stream to fork has no position, or is in quarantine
    #: To do: follow the message, see [forks](operators.md#forks)
    FORK_NOT_AVAILABLE = "FORK_NOT_AVAILABLE"
    #: the stream may still load batches, or uses what the target of the export does not have
    #: To do: follow the message, see [the `fds` command](cli.md)
    EXPORT_NOT_AVAILABLE = "EXPORT_NOT_AVAILABLE"
    #: two streams would load the same versions into one sink, or replace each other's rows
    #: To do: choose another range or sink
    RANGES_OVERLAP = "RANGES_OVERLAP"
    #: `read_change_feed=True`, but the table records no changes where the stream starts
    #: To do: enable the change data feed, or start later
    CHANGE_FEED_DISABLED = "CHANGE_FEED_DISABLED"
    #: `where` does not fit the table's columns, or `columns` leaves out one by which Spark filters
    #: To do: correct `where` or `columns`
    WHERE_INVALID = "WHERE_INVALID"
    #: a column has a name that the manifest or Delta needs
    #: To do: rename it in the source
    RESERVED_COLUMN_NAME = "RESERVED_COLUMN_NAME"
    #: the log names a file outside of the table's bucket or folder
    #: To do: set `allowed_roots`, if you trust the table's writers
    FILE_OUTSIDE_TABLE = "FILE_OUTSIDE_TABLE"
    #: the limits would make more than 100,000 batches
    #: To do: set larger limits, as the message suggests
    TOO_MANY_BATCHES = "TOO_MANY_BATCHES"
    #: a sink that decides per key needs whole commits, and the stream is or would be inside one
    #: To do: run the command in the message
    POSITION_INSIDE_COMMIT = "POSITION_INSIDE_COMMIT"
    #: a backfill run reached a stream that reads by offset
    #: To do: use `stream.backfill(…)`, see [backfill](backfill.md)
    BACKFILL_RUN_REFUSED = "BACKFILL_RUN_REFUSED"
    #: the run has no data interval, or an empty or unfinished one
    #: To do: use `CronDataIntervalTimetable`, see [data intervals](data_intervals.md)
    DATA_INTERVAL_UNUSABLE = "DATA_INTERVAL_UNUSABLE"
    #: plan, load and commit tasks do not belong together
    #: To do: wire `plan >> load >> commit`, see [operators](operators.md)
    WIRING_INVALID = "WIRING_INVALID"
    #: a task between plan and commit did not load the batch in this run
    #: To do: repair those tasks, and clear them with the plan
    BATCH_NOT_LOADED = "BATCH_NOT_LOADED"
    #: a command would lose or duplicate rows
    #: To do: follow the message
    ACTION_REFUSED = "ACTION_REFUSED"
    #: the sink does not show where a lost ledger ended
    #: To do: restore the staging folder from a copy, or follow the message
    RECOVERY_REFUSED = "RECOVERY_REFUSED"
    #: the table has a reader feature that FDS does not support
    #: To do: drop the feature, or upgrade FDS
    TABLE_FEATURE_UNSUPPORTED = "TABLE_FEATURE_UNSUPPORTED"

    # the stream stops before a version
    #: a commit only deletes rows, and the stream reads appends
    #: To do: choose an option that the message lists
    SOURCE_ROWS_DELETED = "SOURCE_ROWS_DELETED"
    #: a commit changes or replaces rows, and the stream reads appends
    #: To do: choose an option that the message lists
    SOURCE_ROWS_CHANGED = "SOURCE_ROWS_CHANGED"
    #: a column was renamed, dropped, or got another type
    #: To do: change the sink, then `fds accept` the version, or [follow such changes](options.md#schema-changes)
    SCHEMA_CHANGED = "SCHEMA_CHANGED"
    #: the change data feed is off at this version
    #: To do: enable it; skip the versions without it, or start after them
    CHANGES_NOT_RECORDED = "CHANGES_NOT_RECORDED"
    #: a commit names a file twice
    #: To do: find out who wrote it; skip it with `skip_versions`
    SOURCE_FILE_REPEATED = "SOURCE_FILE_REPEATED"
    #: a commit, or a file that it needs, is damaged
    #: To do: restore it, or use `skip_versions`
    SOURCE_LOG_DAMAGED = "SOURCE_LOG_DAMAGED"
    #: the table's columns changed, and `where` no longer fits
    #: To do: correct it
    WHERE_OUTDATED = "WHERE_OUTDATED"
    #: the stream is on hold
    #: To do: `fds resume`
    STREAM_HELD = "STREAM_HELD"
    #: the stream waits at a version or batch that it cannot pass
    #: To do: `fds accept` or `fds skip` the version, or `fds resume`
    STREAM_QUARANTINED = "STREAM_QUARANTINED"

    # the table no longer has the position
    #: a file that the stream needs at its position is gone
    #: To do: restore it, or start a new stream
    POSITION_LOST = "POSITION_LOST"
    #: staging lacks the frozen file list of the initial snapshot
    #: To do: restore it, or use `fds rewind --to start`
    SNAPSHOT_LOST = "SNAPSHOT_LOST"
    #: log cleanup removed commits that may belong to the data interval
    #: To do: begin with a later interval, and keep the log for longer
    INTERVAL_LOST = "INTERVAL_LOST"
    #: log cleanup removed versions that the stream has not read
    #: To do: start a new stream, `fds skip` the versions, or set `on_lost_position="earliest"`
    LOG_TRUNCATED = "LOG_TRUNCATED"
    #: a version in the middle of the log is missing
    #: To do: restore the commit file
    LOG_GAP = "LOG_GAP"
    #: the table is older than the stream's position
    #: To do: restore the table, or start a new stream
    LOG_REWOUND = "LOG_REWOUND"
    #: another table is at the URI, or its history was rewritten
    #: To do: restore the old table, or start a new stream
    TABLE_REPLACED = "TABLE_REPLACED"

    # storage
    #: storage did not answer, or answered inconsistently
    #: To do: nothing at first
    STORAGE_FAILED = "STORAGE_FAILED"
    #: a catalog did not answer, answered too slowly, or with something else than the table
    #: To do: nothing at first; a login page means that the host of the connection is wrong
    CATALOG_UNAVAILABLE = "CATALOG_UNAVAILABLE"
    #: Airflow's API or database did not answer
    #: To do: nothing at first
    AIRFLOW_UNAVAILABLE = "AIRFLOW_UNAVAILABLE"
    #: it is unknown whether storage wrote an entry
    #: To do: nothing: the retry finds out
    WRITE_UNCONFIRMED = "WRITE_UNCONFIRMED"
    #: a log file is empty or cut off: it is being written, or damaged
    #: To do: nothing at first; if it stays, restore the file
    LOG_FILE_INCOMPLETE = "LOG_FILE_INCOMPLETE"
    #: storage refuses the credentials
    #: To do: grant the rights that the message names
    ACCESS_DENIED = "ACCESS_DENIED"
    #: a catalog refuses the credentials of its connection, or a right is missing
    #: To do: grant the rights that the message names, see [tables by name](catalogs.md)
    CATALOG_DENIED = "CATALOG_DENIED"
    #: the credentials expired
    #: To do: renew them, then clear the task
    CREDENTIALS_EXPIRED = "CREDENTIALS_EXPIRED"
    #: storage refuses the request: no such bucket, wrong region or endpoint
    #: To do: correct what the message names
    REQUEST_REFUSED = "REQUEST_REFUSED"

    # the ledger and the sink it is bound to
    #: the stream's state does not allow the request
    #: To do: look at `fds status STREAM` and `fds history STREAM`
    LEDGER_REFUSED = "LEDGER_REFUSED"
    #: staging has no ledger of a stream that has run before
    #: To do: set the right staging folder, or run `fds recover`
    LEDGER_LOST = "LEDGER_LOST"
    #: an entry of the ledger is damaged, missing, or of a newer FDS
    #: To do: restore it, or run `fds recover`
    LEDGER_UNREADABLE = "LEDGER_UNREADABLE"
    #: the checkpoint was edited, hidden, or belongs to something else
    #: To do: run the command in the message
    CHECKPOINT_MISMATCH = "CHECKPOINT_MISMATCH"
    #: the stream has read another table so far, or its catalog has moved the table
    #: To do: use another stream for another table; `fds accept` the folder of a moved one
    STREAM_TABLE_CHANGED = "STREAM_TABLE_CHANGED"
    #: the stream was ended permanently
    #: To do: use another name
    STREAM_RETIRED = "STREAM_RETIRED"
    #: only the stream's next run with Spark can begin the requested epoch
    #: To do: run the stream's DAG, or `fds run`
    EPOCH_NOT_OPENED = "EPOCH_NOT_OPENED"
    #: a batch whose rows could not be verified waits for a person
    #: To do: compare, then `fds accept` or `fds replan`
    BATCH_BLOCKED = "BATCH_BLOCKED"
    #: the batch to commit is not planned, or no longer
    #: To do: run the plan again
    BATCH_NOT_PLANNED = "BATCH_NOT_PLANNED"
    #: the sink has rows that the stream has not committed, or lacks committed ones
    #: To do: keep or remove them, as the message says
    SINK_ROWS_UNDECIDED = "SINK_ROWS_UNDECIDED"
    #: the stream would begin with a snapshot, which has rows of skipped versions
    #: To do: load them, or read the history instead, as the message says
    SKIPPED_IN_SNAPSHOT = "SKIPPED_IN_SNAPSHOT"
    #: another run is working on the stream's next batches
    #: To do: wait; if that run is gone, mark it failed
    STREAM_BUSY = "STREAM_BUSY"
    #: another run changed the stream first
    #: To do: nothing: the retry reads the stream again
    STREAM_MOVED = "STREAM_MOVED"
    #: somebody moved the stream while this run worked
    #: To do: nothing: the retry works in the new epoch
    EPOCH_CLOSED = "EPOCH_CLOSED"
    #: the stream is bound to another sink
    #: To do: use that sink, another stream, or `fds replan --new-sink`
    SINK_NOT_BOUND = "SINK_NOT_BOUND"
    #: the sink contradicts the ledger
    #: To do: put it back, or run `fds replan --new-sink`
    SINK_MISMATCH = "SINK_MISMATCH"
    #: the sink overlaps the source or staging
    #: To do: use a separate folder
    SINK_OVERLAPS = "SINK_OVERLAPS"

    # Spark did not finish a batch, and a retry may
    #: Spark failed with an error that may be temporary, named by `error_class`
    #: To do: nothing at first: the retry works on the same rows
    BATCH_FAILED = "BATCH_FAILED"
    #: Spark was killed or lost, and left no report
    #: To do: nothing at first
    SPARK_ENDED_EARLY = "SPARK_ENDED_EARLY"
    #: Airflow killed the task while Spark loaded a batch
    #: To do: nothing
    TASK_KILLED = "TASK_KILLED"
    #: Spark ran out of memory
    #: To do: give it more, or plan smaller batches
    SPARK_OUT_OF_MEMORY = "SPARK_OUT_OF_MEMORY"
    #: the Spark Connect server does not answer, or stopped
    #: To do: nothing at first
    SPARK_CONNECT_LOST = "SPARK_CONNECT_LOST"
    #: the cluster that should run the driver does not start it, or does not report its state
    #: To do: nothing at first; if it stays, see whether the cluster's REST API is reached, and whether
    #: [the driver has ended](clusters.md#when-the-task-ends-before-its-driver)
    SPARK_CLUSTER_LOST = "SPARK_CLUSTER_LOST"
    #: the session or operation on the Connect server was ended: the task was killed, a later attempt took over, or the
    #: server limits how long sessions run
    #: To do: nothing at first; if it stays, raise the server's limit or plan smaller batches
    SPARK_SESSION_ENDED = "SPARK_SESSION_ENDED"
    #: another writer committed to the sink at the same moment
    #: To do: nothing
    CONCURRENT_WRITE = "CONCURRENT_WRITE"
    #: other writers commit to the sink so often that FDS found no gap for a fence or registration
    #: To do: nothing at first; if it stays, let the other writers pause
    SINK_BUSY = "SINK_BUSY"
    #: the database of the sink does not answer, or ended the connection
    #: To do: nothing at first: the retry asks it what it has
    SINK_CONNECTION_LOST = "SINK_CONNECTION_LOST"
    #: a disk of the sink's database is full
    #: To do: free space there; a retry continues
    SINK_FULL = "SINK_FULL"
    #: the sink has a later epoch of the stream
    #: To do: nothing at first; if it stays, compare with `fds status`
    EPOCH_OVERTAKEN = "EPOCH_OVERTAKEN"
    #: a job that only checks did not find the batch in the sink
    #: To do: nothing: the next job loads it
    BATCH_NOT_COMMITTED = "BATCH_NOT_COMMITTED"
    #: Spark does not find the sink, but Airflow does or could not look
    #: To do: mount it where Spark runs, or let Spark read that storage
    SINK_NOT_VISIBLE = "SINK_NOT_VISIBLE"
    #: Spark does not find a file of a batch, but Airflow does or could not look
    #: To do: mount the table where Spark runs, or let Spark read that storage
    SOURCE_FILES_NOT_VISIBLE = "SOURCE_FILES_NOT_VISIBLE"
    #: the driver's report belongs to another batch or attempt, or contradicts the sink
    #: To do: nothing at first; if it stays, find out who writes to `attempts/`
    REPORT_REFUSED = "REPORT_REFUSED"
    #: a driver of a closed epoch created the missing sink
    #: To do: nothing: the next run closes the old epochs in it
    SINK_APPEARED = "SINK_APPEARED"
    #: your function failed with an error that may be temporary
    #: To do: nothing at first: the retry calls it again
    USER_FUNCTION_INTERRUPTED = "USER_FUNCTION_INTERRUPTED"
    #: a batch of a fleet took longer than its stream allows
    #: To do: find out what it waited for, or raise batch_timeout
    BATCH_TIMED_OUT = "BATCH_TIMED_OUT"

    # of a fleet: each stream has a reason of its own
    #: streams of a fleet failed, at least one with a retryable error
    #: To do: look at the reason of each stream
    STREAMS_FAILED = "STREAMS_FAILED"
    #: streams of a fleet failed, none with a retryable error
    #: To do: look at the reason of each stream
    STREAMS_REJECTED = "STREAMS_REJECTED"

    # Spark did not finish a batch, and a retry would fail again
    #: Spark failed with an error, named by `error_class`, that the same rows would cause again
    #: To do: correct the cause
    BATCH_REJECTED = "BATCH_REJECTED"
    #: VACUUM or a person removed files of a planned batch
    #: To do: restore them, or `fds replan` and `fds skip`
    SOURCE_FILES_GONE = "SOURCE_FILES_GONE"
    #: Spark does not find the batch's manifest
    #: To do: let Spark reach staging under the same URI
    MANIFEST_MISSING = "MANIFEST_MISSING"
    #: a file among a batch's reports is not a report, so an earlier attempt may have loaded the batch
    #: To do: use the version of FDS that wrote it, or follow the message
    REPORT_UNREADABLE = "REPORT_UNREADABLE"
    #: a batch has only a part of a commit that the sink needs whole
    #: To do: `fds replan`
    COMMIT_DIVIDED = "COMMIT_DIVIDED"
    #: Spark reads another number of rows than the log counts, so nothing was merged
    #: To do: find out who changed source files in place
    ROWS_DIFFER = "ROWS_DIFFER"
    #: rows of the interval do not satisfy `replace_where`
    #: To do: use `provenance=True` without a predicate
    ROWS_OUTSIDE_INTERVAL = "ROWS_OUTSIDE_INTERVAL"
    #: the order of rows with one key is unknown, or a key is NULL
    #: To do: correct the source, or exclude such rows
    MERGE_ORDER_UNKNOWN = "MERGE_ORDER_UNKNOWN"
    #: your function cannot be called, or fails on the rows of a batch
    #: To do: correct it
    USER_FUNCTION_FAILED = "USER_FUNCTION_FAILED"
    #: Spark, Delta, Scala and JARs do not match, or Delta is missing
    #: To do: see [versions](backends.md#incompatible-versions)
    SPARK_VERSION_MISMATCH = "SPARK_VERSION_MISMATCH"
    #: a Spark setting would make a batch lose rows
    #: To do: unset it
    SPARK_SETTING_REFUSED = "SPARK_SETTING_REFUSED"
    #: the Connect server rejects the login, or TLS fails
    #: To do: correct token and TLS
    SPARK_CONNECT_REFUSED = "SPARK_CONNECT_REFUSED"
    #: the rows do not fit the sink's columns
    #: To do: change the sink, or set `merge_schema=True` for added columns
    SINK_SCHEMA_MISMATCH = "SINK_SCHEMA_MISMATCH"
    #: `where`, `columns` or a predicate of the sink does not fit the batch's columns
    #: To do: correct it
    SINK_OPTION_UNUSABLE = "SINK_OPTION_UNUSABLE"
    #: this kind of sink cannot load this stream
    #: To do: choose another [sink](sinks.md)
    SINK_UNSUITABLE = "SINK_UNSUITABLE"
    #: the sink is inside the source, staging or another table
    #: To do: use a separate folder
    SINK_PLACE_REFUSED = "SINK_PLACE_REFUSED"
    #: Delta's log store for the sink could lose commits
    #: To do: set the log store in the message, see [commits on S3](object_storage.md#commits-on-s3)
    SINK_LOG_STORE_UNSAFE = "SINK_LOG_STORE_UNSAFE"
    #: a property of the sink makes Delta forget which batches it has
    #: To do: unset it
    SINK_FORGETS_BATCHES = "SINK_FORGETS_BATCHES"
    #: a catalog or coordinator keeps the sink's commits
    #: To do: drop the feature, or choose another sink
    SINK_COMMITS_ELSEWHERE = "SINK_COMMITS_ELSEWHERE"
    #: the sink's log has a gap
    #: To do: restore its `_delta_log`
    SINK_LOG_DAMAGED = "SINK_LOG_DAMAGED"
    #: the sink that the stream has written to is gone
    #: To do: restore it, or use `fds rewind --to start`
    SINK_MISSING = "SINK_MISSING"
    #: a commit of the sink lists missing files: a Spark worker lacks the mount of its folder
    #: To do: mount it and move the files into the sink, or follow the message
    SINK_FILES_MISSING = "SINK_FILES_MISSING"
    #: the sink was restored, replaced or created again after the stream wrote to it
    #: To do: run the command in the message
    SINK_REPLACED = "SINK_REPLACED"
    #: another writer removed rows, and `on_sink_overwritten="fail"`
    #: To do: see [other writers](sinks.md#other-writers)
    SINK_OVERWRITTEN = "SINK_OVERWRITTEN"
    #: the sink has more or fewer batches than the ledger
    #: To do: run the command in the message
    SINK_OUT_OF_ORDER = "SINK_OUT_OF_ORDER"
    #: another stream has loaded the same rows into the sink
    #: To do: choose another range, or follow the message
    SINK_HAS_ROWS = "SINK_HAS_ROWS"
    #: a stream of the same name in another staging folder writes to the sink
    #: To do: use one staging folder, or set `other_streams`
    SINK_OF_NAMESAKE = "SINK_OF_NAMESAKE"
    #: other writers write to the sink, so rows cannot be removed or replaced safely
    #: To do: use a separate sink, or the option that the message names
    SINK_SHARED = "SINK_SHARED"
    #: rows have to be removed, but the sink has `delta.appendOnly`
    #: To do: unset the property, or choose another way
    SINK_APPEND_ONLY = "SINK_APPEND_ONLY"
    #: the sink has a batch twice
    #: To do: remove the rows of the later version
    BATCH_DOUBLED = "BATCH_DOUBLED"
    #: a table of a function has a batch of an epoch that was not closed there
    #: To do: follow the message
    EPOCH_NOT_CLOSED = "EPOCH_NOT_CLOSED"

    # what Spark wrote is not what was planned
    #: rows fail an expectation whose action is `fail`
    #: To do: see [expectations](expectations.md)
    EXPECTATION_FAILED = "EXPECTATION_FAILED"
    #: expectations would keep a larger share of a batch out of the sink than `max_rejected`
    #: To do: see [expectations](expectations.md)
    TOO_MANY_REJECTED = "TOO_MANY_REJECTED"
    #: an expectation names a column that the rows lack, or is no condition on one row
    #: To do: correct `expect` of the stream
    EXPECTATION_UNUSABLE = "EXPECTATION_UNUSABLE"
    #: the number of rows in the sink differs from the plan
    #: To do: compare, then `fds accept`
    ROWS_NOT_VERIFIED = "ROWS_NOT_VERIFIED"
