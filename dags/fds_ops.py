"""Move any stream from the UI: "Trigger DAG" asks for the stream, the move and the reason.

Who may trigger this DAG may move streams: give it to those who may, by Airflow's permissions.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_provider_fds import DeltaStreamMoveOperator

MOVES = ["rewind", "reset", "replan", "rebind", "skip", "acknowledge", "accept", "hold", "resume", "retire"]


def optional(kind: str, text: str) -> Param:
    """Return a parameter that may be left empty."""
    return Param(None, type=["null", kind], description=text)


with DAG(
    "fds_ops",
    schedule=None,
    # params keep their types
    render_template_as_native_obj=True,
    params={
        "stream": Param("", type="string", description="Name of the stream", minLength=1),
        "move": Param("hold", type="string", enum=MOVES),
        "why": Param("", type="string", description="The reason; it stays in the stream's history", minLength=1),
        "to_version": optional("integer", "rewind: first version to read"),
        "to_timestamp": optional("string", "rewind: read from the first commit at or after this time (UTC)"),
        "to_batch": optional("integer", "rewind: read from where this batch began"),
        "version": optional("integer", "skip, acknowledge: version of the table"),
        "batch": optional("integer", "accept: id of the blocked batch"),
        "landed": optional("string", "for a batch of your own job: yes or no; of a function by write"),
        "delete": Param(
            default=False,
            type="boolean",
            description="rewind: let the next run delete the rows that are read again (the sink needs provenance)",
        ),
        "sink": Param(
            None,
            type=["null", "string"],
            enum=[None, "keep", "empty"],
            description="rewind, reset: what becomes of the rows in the sink; needed for one that merges",
        ),
        "force_sink": Param(
            default=False, type="boolean", description="delete, empty: although others have written to the sink"
        ),
        "replaces": Param(default=False, type="boolean", description="Give up a request that waits for its run"),
        "storage_conn_id": optional("string", "Airflow connection of the stream's storage"),
    },
):
    DeltaStreamMoveOperator(
        task_id="move",
        stream="{{ params.stream }}",
        move="{{ params.move }}",
        why="{{ params.why }}",
        to_version="{{ params.to_version }}",
        to_timestamp="{{ params.to_timestamp }}",
        to_batch="{{ params.to_batch }}",
        version="{{ params.version }}",
        batch="{{ params.batch }}",
        landed="{{ params.landed }}",
        delete="{{ params.delete }}",
        sink="{{ params.sink }}",
        force_sink="{{ params.force_sink }}",
        replaces="{{ params.replaces }}",
        storage_conn_id="{{ params.storage_conn_id }}",
        retries=2,
    )
