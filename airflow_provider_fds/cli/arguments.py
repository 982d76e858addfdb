"""Arguments that several commands share, and the objects built from them."""

from __future__ import annotations

import argparse
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.cli.catalogs import add_catalog, catalog_called, is_known
from airflow_provider_fds.durations import format_duration, parse_duration
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.checkpoint.store import CheckpointStore
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.places import Places
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream


#: The default deployment of the command line.
CLI_DEPLOYMENT = "cli"

#: The name in messages of a stream that has none: what a new stream would read is shown, and nothing is written.
_UNNAMED: Final = "cli"

#: What a command without ``--stream`` lacks.
STREAM_NEEDED: Final = "--stream NAME (the name under which staging keeps the position)"

_SHORTEST_INTERVAL: Final = timedelta(seconds=1)

#: Help of ``--storage-option``.
STORAGE_OPTION_HELP = (
    "an option of the object store, such as region=eu-west-1; may be repeated; pass secrets through the environment "
    "instead"
)


def add_stream(parser: argparse.ArgumentParser, *, may_be_in_file: bool = False) -> None:
    """Add table, stream name and source options. With ``may_be_in_file``, table and name may be omitted."""
    one = None if not may_be_in_file else "?"
    parser.add_argument("table", metavar="TABLE", nargs=one, help="URI or path of the source table, or its name")
    add_catalog(parser)
    parser.add_argument("--stream", metavar="NAME", required=not may_be_in_file, help="name of the stream")
    parser.add_argument(
        "--option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a source option, such as starting_version=0; may be repeated",
    )


def add_storage(
    parser: argparse.ArgumentParser,
    *,
    staging_required: bool,
    default_deployment: str | None = None,
    may_be_in_file: bool = False,
) -> None:
    """Add staging, deployment and storage options; the staging folder may also come from the environment.

    Args:
        parser: The parser.
        staging_required: Whether a staging folder must be given.
        default_deployment: Whose deployment an omitted one is, in words; it is then ``None``.
        may_be_in_file: Whether a file of streams may name the staging folder instead. Then the command itself checks
            that there is one.
    """
    known = staging_of_environment()
    parser.add_argument(
        "--staging",
        metavar="URI",
        required=staging_required and not known and not may_be_in_file,
        default=known,
        help="folder for the ledger and manifests, URI or path (default: the environment variable "
        "AIRFLOW__FDS__STAGING)",
    )
    parser.add_argument(
        "--deployment",
        default=os.environ.get("AIRFLOW__FDS__DEPLOYMENT", CLI_DEPLOYMENT if default_deployment is None else None),
        help=f"Airflow installation that the stream belongs to (default: {default_deployment or '%(default)s'})",
    )
    parser.add_argument(
        "--storage-option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help=STORAGE_OPTION_HELP,
    )


def staging_of_environment() -> str | None:
    """Return the staging folder of the environment, to which ``airflow fds`` adds that of Airflow's configuration."""
    return os.environ.get("AIRFLOW__FDS__STAGING") or None


def stream_of(arguments: argparse.Namespace) -> DeltaStream:
    """Return the stream the arguments describe.

    Raises:
        ConfigurationError: Reports all problems at once.
    """
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream

    checkpoint = getattr(arguments, "checkpoint", None)
    return DeltaStream(
        arguments.stream or _UNNAMED,
        table=arguments.table,
        catalog_conn_id=getattr(arguments, "catalog", None),
        staging=arguments.staging,
        checkpoint=f"file:{checkpoint}" if checkpoint else "variable",
        allow_overlap=getattr(arguments, "allow_overlap", False),
        expect=expectations(getattr(arguments, "expect", [])),
        max_rejected=getattr(arguments, "max_rejected", None),
        rejects=getattr(arguments, "rejects", None),
        options=pairs(arguments.option, "--option"),
    )


def add_own_spark(parser: argparse.ArgumentParser, versions: str) -> None:
    """Add the arguments about a Spark of the user's own, of these versions, and its Delta."""
    parser.add_argument(
        "--spark-binary",
        metavar="PATH",
        help=f"spark-submit of your own Spark ({versions}); default: the installed pyspark, else SPARK_HOME or PATH",
    )
    parser.add_argument(
        "--delta-version",
        metavar="VERSION",
        help="Delta version to use instead of the one FDS chooses for your Spark version; 'provided' if your Spark "
        "already includes Delta",
    )


def duration(text: str) -> timedelta:
    """Return a duration such as ``90s``, ``10m``, ``2h`` or ``1d``."""
    found = parse_duration(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected a duration such as 90s, 10m, 2h or 1d, got {text!r}")
    return found


def positive_int(text: str) -> int:
    """Return a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def add_interval(parser: argparse.ArgumentParser, *, default: timedelta, examples: str) -> None:
    """Add the time between two rounds of a command that goes on until it is interrupted; see :func:`interval_seconds`.

    Args:
        parser: The parser.
        default: The default.
        examples: Two durations for the help.
    """
    parser.add_argument(
        "--poll-interval",
        metavar="DURATION",
        type=duration,
        default=default,
        help=f"time between two rounds, such as {examples} (default: {default.total_seconds():.0f}s)",
    )


def interval_seconds(arguments: argparse.Namespace) -> float:
    """Return the time between two rounds in seconds.

    Raises:
        ConfigurationError: It is shorter than a second, which would keep the store busy.
    """
    interval: timedelta = arguments.poll_interval
    if interval < _SHORTEST_INTERVAL:
        raise ConfigurationError(f"--poll-interval must be at least 1s, got {format_duration(interval)}")
    return interval.total_seconds()


def pairs(texts: list[str], flag: str) -> dict[str, Any]:
    """Return ``KEY=VALUE`` arguments as a mapping."""
    found: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise ConfigurationError(f"{flag} must be KEY=VALUE, got {text!r}")
        found[key] = value
    return found


def expectations(texts: list[str]) -> dict[str, str] | None:
    """Return ``EXPRESSION=ACTION`` arguments as a mapping: the action is what follows the last ``=``."""
    from airflow_provider_fds.batch.spec import ACTIONS

    found: dict[str, str] = {}
    for text in texts:
        expression, separator, action = text.rpartition("=")
        if not separator or action.strip() not in ACTIONS:
            raise ConfigurationError(
                f"--expect must be EXPRESSION=ACTION with one of the actions {', '.join(ACTIONS)}, such as "
                f"--expect 'amount >= 0=drop'; got {text!r}"
            )
        if expression.strip() in found:
            raise ConfigurationError(f"--expect has the expression {expression.strip()!r} twice")
        found[expression.strip()] = action.strip()
    return found or None


def person(deployment: str) -> Actor:
    """Return who calls the command, for the entries of a ledger.

    A user id without a name (containers run with any) is named by its number.
    """
    import getpass

    from airflow_provider_fds.ledger.owner import Actor

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return Actor(deployment=deployment, user=user, host=os.uname().nodename)


def context_of(arguments: argparse.Namespace, *, owner: Owner, sink: Sink | None = None) -> StreamContext:
    """Return the context of a stream that a person runs, with the sink that FDS writes to, if it does."""
    from airflow_provider_fds.stream.connected_stream import StreamContext

    return StreamContext(
        staging_uri=arguments.staging,
        deployment=arguments.deployment,
        actor=person(arguments.deployment),
        owner=owner,
        places=places_of(arguments),
        sink_places=sink_places(arguments, sink),
        staging_options=pairs(arguments.storage_option, "--storage-option"),
        checkpoints=_checkpoints(arguments),
        owner_is_running=_is_of_airflow if getattr(arguments, "unlock", False) else owner_is_running,
    )


def _checkpoints(arguments: argparse.Namespace) -> CheckpointStore | None:
    checkpoint = getattr(arguments, "checkpoint", None)
    if not checkpoint:
        return None
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore

    return FileCheckpointStore(Path(checkpoint))


def places_of(arguments: argparse.Namespace) -> Places:
    """Return what finds tables with the options of the arguments.

    Raises:
        ConfigurationError: As :func:`.catalog_called`.
    """
    from airflow_provider_fds.places import Paths

    options = pairs(arguments.storage_option, "--storage-option")
    catalog = getattr(arguments, "catalog", None)
    if catalog is None:
        return Paths(options)
    from airflow_provider_fds.catalog.table import CatalogPlaces

    return CatalogPlaces(catalog_called(arguments, catalog, _source(arguments)), lambda _uri: options)


def sink_places(arguments: argparse.Namespace, sink: Sink | None) -> Places | None:
    """Return what finds the table of a sink that has a name, ``None`` for any other sink.

    Raises:
        ConfigurationError: As :func:`.catalog_called`.
    """
    if sink is None:
        return None
    from airflow_provider_fds.sinks import DeltaSink

    if not isinstance(sink, DeltaSink) or sink.catalog_conn_id is None:
        return None
    from airflow_provider_fds.catalog.sinks import SinkPlaces

    called = getattr(arguments, "sink_catalog", None) or sink.catalog_conn_id
    catalog = catalog_called(arguments, called, f"the sink {sink.uri}", "--sink-catalog")
    options = pairs(arguments.storage_option, "--storage-option")
    return SinkPlaces(catalog, lambda _uri: options, sink)


def places_for(arguments: argparse.Namespace, state: StreamState) -> Places:
    """Return what finds the table of a ledger: by its name, if its catalog can be asked from here."""
    known = state.catalog
    catalog = None if known is None else getattr(arguments, "catalog", None) or known.connection
    can_ask = catalog is not None and is_known(arguments, catalog)
    return places_of(argparse.Namespace(**{**vars(arguments), "catalog": catalog if can_ask else None}))


def _source(arguments: argparse.Namespace) -> str:
    table = getattr(arguments, "table", None)
    return "the table" if table is None else f"the table {table}"


def open_table(arguments: argparse.Namespace, table: str) -> Storage:
    """Open a table with the options of the arguments."""
    from airflow_provider_fds.delta.storage.open import open_place

    return open_place(places_of(arguments).resolve(table))


def open_folder(arguments: argparse.Namespace, uri: str) -> Storage:
    """Open a folder that is no table, such as staging, with the options of the arguments."""
    from airflow_provider_fds.delta.storage.open import open_storage

    return open_storage(uri, pairs(arguments.storage_option, "--storage-option"))


def owner_runs(arguments: argparse.Namespace, owner: Owner) -> bool | None:
    """Return whether the owner of planned batches is running, ``None`` if it cannot be looked up from here."""
    is_running = getattr(arguments, "airflow_owner_is_running", None)
    if owner.kind == "airflow" and is_running is not None and owner.deployment == arguments.deployment:
        return bool(is_running(owner))
    is_here = owner.kind == "cli" and (owner.run_id or "").partition(":")[0] == os.uname().nodename
    return owner_is_running(owner) if is_here or owner.only_plans else None


def has_dag(arguments: argparse.Namespace, task: Actor) -> bool | None:
    """Return whether Airflow still has the DAG of a task, ``None`` if it cannot be looked up from here."""
    ask = getattr(arguments, "airflow_has_dag", None)
    return None if ask is None or task.deployment != arguments.deployment else bool(ask(task.dag_id))


def _is_of_airflow(owner: Owner) -> bool:
    """Every owner of the command line counts as ended; an Airflow task still counts as running."""
    return owner.kind != "cli"


def process_owner(deployment: str) -> Owner:
    """Return this process as an owner: ``<host>:<process id>:<start of the process>``."""
    from airflow_provider_fds.ledger.owner import Owner

    process_id = os.getpid()
    run_id = f"{os.uname().nodename}:{process_id}:{_started(process_id) or 0}"
    return Owner(kind="cli", deployment=deployment, run_id=run_id)


def owner_is_running(owner: Owner) -> bool:
    """Return whether the owner of planned batches still runs, to the knowledge of this machine.

    A process of this machine is looked up. An owner that cannot be looked up from here, such as an Airflow task or a
    process of another machine, counts as running.
    """
    if owner.only_plans:
        return False
    host, _, rest = (owner.run_id or "").partition(":")
    process_id, _, started = rest.partition(":")
    if owner.kind != "cli" or host != os.uname().nodename or not process_id.isdecimal():
        return True
    return _started(int(process_id)) == (int(started) if started.isdecimal() else None)


def _started(process_id: int) -> int | None:
    """Return when a process started (clock ticks since boot, 0 if unknown), or ``None`` if it is gone."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _answers(process_id)
    except OSError:
        return 0
    state, *fields = text.rpartition(")")[2].split()
    return None if state == "Z" else int(fields[18])


def _answers(process_id: int) -> int | None:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0


def ledger_of(arguments: argparse.Namespace, stream: str | None = None) -> tuple[Ledger, Actor]:
    """Return the ledger of a stream, read to its head, and who is asking.

    Args:
        arguments: Staging, its options, and the name of the stream.
        stream: Another name.

    Raises:
        ConfigurationError: There is no such stream.
    """
    from airflow_provider_fds.ledger.staging.log import Ledger

    name = arguments.stream if stream is None else stream
    ledger = Ledger(open_folder(arguments, arguments.staging), name)
    if ledger.find().phase == "empty":
        from airflow_provider_fds.cli.command_list import closest
        from airflow_provider_fds.stream.monitoring.all_statuses import stream_names

        known = stream_names(ledger.storage)
        if name in known:
            hint = " Its folder has no entry: the first run ended before it wrote one, or the entries were removed"
        else:
            hint = closest(name, known) or " Check the name and the staging folder"
        where = f"there is no stream {name!r} in {arguments.staging}"
        raise ConfigurationError(f"{where}.{hint}", reason=Reason.STREAM_NOT_FOUND)
    return ledger, person(ledger.state.deployment)
