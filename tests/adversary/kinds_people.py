"""A careless person: moves at random times, alongside runs and zombies; rows removed in time, late or never."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from typing import TYPE_CHECKING

import deltalake

from tests.adversary.checker import Bounds, count, judge_keys
from tests.adversary.kinds_runs import begin, kill_a_run, moment, source_of, stall_a_run, verdict
from tests.adversary.play import kind
from tests.adversary.scene import NotRunError, Outcome, Scene, Stream, VerdictError
from tests.adversary.warm import sql
from tests.adversary.ways import committed_before, named, options_of, settle

if TYPE_CHECKING:
    from tests.adversary.source import Source

#: The parts of a run that may be stopped: all of it, or the Python without the JVM.
ANY = ("group", "python")
#: If a message names several commands, a person follows the first of these.
EPOCHS = ("replan", "recover", "resume", "unlock", "rewind")


def restore_sink(scene: Scene, stream: Stream, asked: Outcome) -> bool:
    """Restore the sink to the version that a move named as the last without the rows that are read again."""
    found = re.search(r"last version of the sink without them is (\d+)", asked.out)
    if found is None:
        scene.note("no version was named")
        return False
    sql(scene, f"RESTORE TABLE delta.`{stream.sink}` TO VERSION AS OF {found[1]}")
    return True


def remove_rows(scene: Scene, stream: Stream, asked: Outcome) -> bool:
    """Restore the sink as a move said, or have the next run remove the rows by a command that it named."""
    if scene.rng.random() < 0.5 and restore_sink(scene, stream, asked):
        return True
    commands = named(Outcome("", 0, "", asked.out))
    if not commands:
        scene.note("no command was named")
        return False
    name, *rest = scene.rng.choice(commands)
    return not stream.move(name, *options_of(stream, name, " ".join(rest)), "--replace").is_refused


def type_delete(scene: Scene, stream: Stream, first: int, *, is_bare: bool = False) -> None:
    """Delete rows by their version, in the transaction that closes epoch 1; ``is_bare``: in none."""
    logs = sorted((stream.sink / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    app_id = next(action["txn"]["appId"] for action in actions if "txn" in action)
    settings = {"txnAppId": app_id, "txnVersion": 2 << 32} if not is_bare else {}
    before = [f"SET spark.databricks.delta.write.{name}={value}" for name, value in settings.items()]
    after = [f"RESET spark.databricks.delta.write.{name}" for name in settings]
    sql(scene, *before, f"DELETE FROM delta.`{stream.sink}` WHERE _source_version >= {first}", *after)


def versions_again(source: Source, stream: Stream, first: int) -> Counter[int]:
    """Return rows of versions from ``first`` that the sink already has: a rewind reads them again."""
    there = count(source.scene, stream.sink)
    return Counter({row: 1 for row in source.emitted(first) if there[row]})


@kind
def rewind_with_its_statement_in_time(scene: Scene) -> None:
    """Rewound, the rows removed as the message says, the stream continues: every row once."""
    source, stream = begin(scene, arguments=("--sink-option", "provenance=yes"))
    stream.run()
    for _ in range(scene.rng.randint(1, 2)):
        to = scene.rng.randint(0, source.version)
        asked = stream.move("rewind", "--to", str(to))
        remove_rows(scene, stream, asked)
        source.append()
        settle(stream)
    verdict(scene, source, stream)


@kind
def rewind_with_an_unknown_statement(scene: Scene) -> None:
    """A person deletes any rows in the transaction of the fence: what the next run says leads to every row once."""
    source, stream = begin(scene, arguments=("--sink-option", "provenance=yes"))
    stream.run()
    stream.move("rewind", "--to", str(scene.rng.randint(0, source.version)))
    type_delete(scene, stream, scene.rng.randint(0, source.version))
    source.append()
    settle(stream, allowed=EPOCHS)
    verdict(scene, source, stream)


@kind
def rewind_with_a_late_statement(scene: Scene) -> None:
    """Rewound, the next run comes before the statement: rows must not be missing silently."""
    source, stream = begin(scene, arguments=("--sink-option", "provenance=yes"))
    stream.run()
    to = scene.rng.randint(0, source.version)
    asked = stream.move("rewind", "--to", str(to))
    if asked.is_refused:
        raise VerdictError("stuck", f"a rewind is refused: {asked}")
    source.append()
    again = versions_again(source, stream, to)
    first = settle(stream)
    before = scene.refusals
    done = True
    if scene.rng.random() < 0.6:
        type_delete(scene, stream, to, is_bare=scene.rng.random() < 0.4)
    else:
        done = restore_sink(scene, stream, asked)
    source.append()
    later = stream.run()
    said = (later.said + stream.status().said + first.said) if done else ""
    bounds = Bounds(source.emitted())
    bounds.maybe_again(again)
    told = later.is_refused or scene.refusals > before or re.search(r"removed|DELETE|missing|RESTORE", said)
    if not told:
        judge_keys(scene, bounds, stream.sink)
    # following the message must lead to every row, once
    if later.is_refused:
        settle(stream, allowed=EPOCHS)
        judge_keys(scene, bounds, stream.sink)


@kind
def rewind_that_deletes_by_itself(scene: Scene) -> None:
    """`rewind --sink-rows delete` and `--sink-rows empty` alongside runs that die and zombies: every row once."""
    source, stream = begin(scene, arguments=("--sink-option", "provenance=yes"))
    stream.run()
    for _ in range(2):
        source.append()
        is_stalled = scene.rng.random() < 0.6
        zombie = stall_a_run(scene, stream, "--unlock", which=ANY) if is_stalled else None
        to = str(scene.rng.randint(0, source.version))
        words = scene.rng.choice(
            (["rewind", "--to", to, "--sink-rows", "delete"], ["rewind", "--to", "start", "--sink-rows", "empty"])
        )
        asked = stream.move(*words)
        if "unrecognized arguments" in asked.err:
            raise NotRunError("this version has no --sink-rows delete")
        if scene.rng.random() < 0.5:
            kill_a_run(scene, stream, "--unlock")
        if zombie is not None and scene.rng.random() < 0.5:
            zombie.signal(signal.SIGCONT)
        settle(stream, allowed=EPOCHS)
        if zombie is not None:
            zombie.signal(signal.SIGCONT)
            zombie.wait()
    source.append()
    settle(stream, allowed=EPOCHS)
    verdict(scene, source, stream)


@kind
def two_requests_in_a_row(scene: Scene) -> None:
    """A batch lands uncommitted while one request follows another before any run."""
    source, stream = begin(scene, arguments=("--sink-option", "provenance=yes"))
    if scene.rng.random() < 0.7:
        stream.run("--max-batches", "1")
    source.append()
    zombie = stall_a_run(
        scene,
        stream,
        via=scene.rng.choice(("connect", "connect", "submit")),
        point=scene.rng.choice(("the sink gets a commit", "the sink gets a file", "an attempt is written down")),
        which=ANY,
    )
    position = scene.rng.randint(0, source.version)
    moves = [
        scene.rng.choice(
            (["rewind", "--to", str(position)], ["replan"], ["rewind", "--to", "start"], ["replan", "--new-sink"])
        )
        for _ in range(2)
    ]
    committed: Counter[int] = Counter()
    for number, (name, *options) in enumerate(moves):
        asked = stream.move(name, *options, *(["--replace"] if number else []))
        if name == "rewind":
            # what was committed by then is read again, as the command says; what landed unnoticed must not be
            committed.update(committed_before(asked, source))
    if scene.rng.random() < 0.5:
        zombie.signal(signal.SIGCONT)
    if scene.rng.random() < 0.3:
        zombie.signal(signal.SIGKILL)
    settle(stream, allowed=EPOCHS)
    zombie.signal(signal.SIGCONT)
    zombie.wait()
    source.append()
    settle(stream, allowed=EPOCHS)
    bounds = Bounds(source.emitted())
    bounds.maybe_again(committed)
    judge_keys(scene, bounds, stream.sink)


@kind
def replan_with_a_zombie(scene: Scene) -> None:
    """A person gives up a batch in progress; the zombie continues early or late: nothing twice, nothing missing."""
    source, stream = begin(scene)
    if scene.rng.random() < 0.6:
        stream.run("--max-batches", "1")
        source.append()
    zombie = stall_a_run(scene, stream, via=scene.rng.choice(("connect", "connect", "submit")), which=ANY)
    stream.move("replan")
    if scene.rng.random() < 0.4:
        zombie.signal(signal.SIGCONT)
    # if the run has not created the stream yet, the replan is refused and the run continues normally
    settle(stream, allowed=EPOCHS)
    zombie.signal(signal.SIGCONT)
    zombie.wait()
    source.append()
    settle(stream, allowed=EPOCHS)
    verdict(scene, source, stream)


@kind
def rebind_with_a_zombie(scene: Scene) -> None:
    """The stream continues into another sink while a run of the old one is stopped."""
    source, stream = begin(scene)
    stream.run("--max-batches", "1")
    source.append()
    zombie = stall_a_run(scene, stream, which=ANY)
    stream.move("replan", "--new-sink")
    old = stream.sink
    stream.sink = scene.root / "silver"
    settle(stream, allowed=("unlock", "resume"))
    zombie.signal(signal.SIGCONT)
    zombie.wait()
    source.append()
    settle(stream, allowed=("unlock", "resume"))
    judge_keys(scene, Bounds(source.emitted()), old, stream.sink)


@kind
def hold_and_resume_at_random(scene: Scene) -> None:
    """Held and resumed alongside runs; while the stream is held, nothing new is planned."""
    source, stream = begin(scene)
    stream.run("--max-batches", "1")
    running = stream.start()
    moment(scene, running, stream)
    stream.move("hold")
    running.wait()
    held = stream.run()
    there = sum(count(scene, stream.sink).values())
    source.append()
    stream.run()
    if sum(count(scene, stream.sink).values()) != there:
        raise VerdictError("silent", f"rows came into the sink of a stream that is held: {held}")
    if scene.rng.random() < 0.5:
        stream.move("replan")
    stream.move("resume")
    settle(stream)
    verdict(scene, source, stream)


@kind
def skipped_version(scene: Scene) -> None:
    """A skipped version is missing, and nothing else is."""
    source, stream = begin(scene)
    stream.run("--max-batches", "1")
    if scene.rng.random() < 0.5:
        source.delete("id >= 0 AND id < 2")
    source.append()
    source.append()
    version = source.version - scene.rng.randint(0, 1)
    said = stream.move("skip", "--version", str(version))
    if scene.rng.random() < 0.5:
        kill_a_run(scene, stream)
    settle(stream, allowed=("skip",))
    source.append()
    settle(stream, allowed=("skip",))
    bounds = Bounds(source.emitted())
    bounds.maybe_missing(source.emitted(version, version))
    judge_keys(scene, bounds, stream.sink)
    if not said.is_refused and set(count(scene, stream.sink)) & set(source.emitted(version, version)):
        raise VerdictError("silent", f"version {version} was to be skipped ({said}) and is in the sink")


@kind
def skipped_change(scene: Scene) -> None:
    """A stream that stops before a change continues after the named command."""
    source, stream = begin(scene)
    stream.run()
    scene.rng.choice(
        (source.delete, source.update, source.overwrite, source.replace_where, source.truncate, source.merge)
    )()
    source.append()
    stopped = stream.run()
    changed = [version for version, emission in source.emissions.items() if emission.kind == "change"]
    if changed and not stopped.is_refused:
        raise VerdictError("silent", f"version {changed[0]} removes rows, and the run passed it: {stopped}")
    settle(stream, allowed=("skip",))
    verdict(scene, source, stream)


@kind
def reset_after_the_sink_was_emptied(scene: Scene) -> None:
    """A rewind to the start empties the sink as the message says, the stream starts over: every row once."""
    source, stream = begin(scene)
    stream.run()
    asked = stream.move("rewind", "--to", "start")
    if not remove_rows(scene, stream, asked):
        raise VerdictError("stuck", f"the rewind names no way to remove the rows of the sink: {asked}")
    source.append()
    settle(stream)
    verdict(scene, source, stream)


@kind
def adopted_by_force_beside_its_owner(scene: Scene) -> None:
    """`unlock --force` while the owner is alive: a race for each batch, which one of them wins."""
    source, stream = begin(scene)
    stream.run("--max-batches", "1")
    source.append()
    zombie = stream.start()
    moment(scene, zombie, stream)
    if scene.rng.random() < 0.7:
        zombie.signal(signal.SIGSTOP, scene.rng.choice(("group", "python")))
    stream.move("unlock", "--force")
    second = stream.start("--unlock")
    zombie.signal(signal.SIGCONT)
    second.wait()
    zombie.wait()
    source.append()
    settle(stream, allowed=("unlock",))
    verdict(scene, source, stream)


@kind
def recover_beside_everything(scene: Scene) -> None:
    """`recover` of a healthy or running stream, its checkpoint gone or old, changes nothing that is right."""
    source, stream = begin(scene)
    stream.run("--max-batches", "1")
    kept = stream.checkpoint.read_bytes() if stream.checkpoint.exists() else None
    source.append()
    running = stream.start()
    moment(scene, running, stream)
    scene.rng.choice(
        (
            lambda: None,
            lambda: stream.checkpoint.unlink(missing_ok=True),
            lambda: stream.checkpoint.write_bytes(kept or b""),
        )
    )()
    stream.move("recover", "--sink", str(stream.sink), "--checkpoint", str(stream.checkpoint))
    running.wait()
    source.append()
    settle(stream, allowed=("recover", "unlock"))
    verdict(scene, source, stream)


@kind
def sink_restored_and_rewound_to_a_batch(scene: Scene) -> None:
    """The sink is restored on purpose; the run refuses; `rewind --to batch:N` continues after what the sink has."""
    source = source_of(scene)
    stream = Stream(scene, source.path, options=("starting_version=0", "max_versions_per_batch=1"))
    stream.run()
    last = deltalake.DeltaTable(stream.sink).version()
    to = scene.rng.randint(0, last - 1)
    deltalake.DeltaTable(stream.sink).restore(to)
    source.append()
    refused = stream.run()
    if not refused.is_refused:
        judge_keys(scene, Bounds(source.emitted()), stream.sink)
        raise VerdictError("silent", f"the sink was restored, and the run says nothing: {refused}")
    stream.move("rewind", "--to", f"batch:{to + 1}")
    settle(stream)
    verdict(scene, source, stream)


@kind
def any_moves_in_any_order(scene: Scene) -> None:  # noqa: PLR0912 - one branch per action
    """A person tries one action after another, alongside runs in progress and zombies."""
    source, stream = begin(scene, "skip_change_commits=true", arguments=("--sink-option", "provenance=yes"))
    bounds = Bounds()
    zombies = []
    reread: Counter[int] = Counter()
    skipped: set[int] = set()
    for _ in range(scene.rng.randint(4, 6)):
        step = scene.rng.choice(
            ("run", "run", "write", "write", "zombie", "kill", "rewind", "rewind in time", "replan", "reset", "hold",
             "resume", "skip", "unlock", "go on", "status")
        )  # fmt: skip
        scene.note(f"-- {step}")
        if step == "run":
            stream.run(*scene.rng.choice(((), ("--unlock",), ("--max-batches", "1"))))
        elif step == "write":
            source.random_commit(changes=True)
        elif step in ("zombie", "kill"):
            source.append()
            if step == "kill":
                kill_a_run(scene, stream, "--unlock")
            else:
                zombies.append(stall_a_run(scene, stream, "--unlock", which=ANY))
        elif step == "go on" and zombies:
            zombies.pop().signal(signal.SIGCONT)
        elif step in ("rewind", "rewind in time", "reset"):
            to = 0 if step == "reset" else scene.rng.randint(0, source.version)
            words = ["rewind", "--to", "start" if step == "reset" else str(to)]
            asked = stream.move(*words, *scene.rng.choice(((), ("--replace",))))
            if not asked.is_refused:
                reread.update(dict.fromkeys(source.emitted(to), 1))
                if step == "rewind in time" and not zombies:
                    restore_sink(scene, stream, asked)
        elif step == "skip":
            version = source.version + scene.rng.randint(-1, 1)
            if version >= 0 and not stream.move("skip", "--version", str(version)).is_refused:
                skipped.add(version)
        elif step == "unlock":
            stream.move("unlock", "--force")
        elif step in ("replan", "hold", "resume"):
            stream.move(step, *(scene.rng.choice(((), ("--replace",))) if step == "replan" else ()))
        elif step == "status" and stream.checkpoint.exists():
            stream.status()
    for zombie in zombies:
        zombie.signal(signal.SIGCONT)
    for running in scene.running:
        if running.is_running:
            running.wait()
    stream.move("resume")
    source.append()
    settle(stream, allowed=(*EPOCHS, "unlock", "skip"))
    bounds.once(source.emitted())
    for row, times in reread.items():
        bounds.upper[row] += times
    for version in skipped:
        bounds.maybe_missing(source.emitted(version, version))
    judge_keys(scene, bounds, stream.sink)
