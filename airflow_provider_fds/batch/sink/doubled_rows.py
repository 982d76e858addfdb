"""What is said of rows that two streams have loaded into one sink, and the commands that load them once.

Asked by the driver before a write, and by the planner before the first batch of an epoch. Standard library only, Python
3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.loaded_streams import Piece

#: When the rule does not apply.
UNLESS = (
    "if the two load different rows, or the sink no longer has those rows, set allow_overlap=True on this stream "
    "(`fds`: --allow-overlap)"
)


def describe_doubled(stream: str, mine: Piece, other: str, theirs: Piece, path: str) -> str:
    """Return what two streams have loaded twice, which of them to keep, and the commands.

    Args:
        stream: Name of the stream.
        mine: What it has loaded.
        other: Name of the other stream.
        theirs: What that has loaded, with some of the same rows.
        path: The sink.
    """
    # the one that began earlier has the rows of both; a snapshot has those of all versions before it
    is_kept = mine.is_snapshot or (not theirs.is_snapshot and mine.start <= theirs.start)
    kept, retired = (stream, other) if is_kept else (other, stream)
    first = None if mine.is_snapshot or theirs.is_snapshot else max(mine.versions[0], theirs.versions[0])
    return (
        f"stream {stream!r} has loaded {mine.describe()} of the source into the sink {path} (version "
        f"{mine.sink_version}), and stream {other!r} has loaded {theirs.describe()} into it (version "
        f"{theirs.sink_version}): rows are duplicated. Version {max(mine.sink_version, theirs.sink_version) - 1} of "
        f"the sink is the last without these rows. Retire stream {retired!r} (`fds retire {retired} --why …`), then "
        f"let stream {kept!r} remove both copies and load them once, by {remove_and_load(kept, first)}; {UNLESS}"
    )


def remove_and_load(stream: str, version: int | None) -> str:
    """Return the command that removes rows FDS cannot identify and loads them again.

    Args:
        stream: The stream that loads them.
        version: The first version to load again; ``None``: some of the rows came with a snapshot, so their versions are
            not known.
    """
    everything = f"running `fds rewind {stream} --to start --sink-rows empty --force-sink --why …`"
    if version is None:
        return everything
    rewind = f"`fds rewind {stream} --to {version} --sink-rows delete --force-sink --why …`"
    return f"{everything}, or, with provenance, {rewind}"
