"""The job as a process of its own, started as the command line and the operators start it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from airflow_provider_fds.sinks import ForeachBatchSink
from airflow_provider_fds.spark.submission.launch import run_locally
from airflow_provider_fds.spark.submission.submit import submit_arguments

pytestmark = pytest.mark.timeout(900)


# D34
def test_two_processes_on_one_batch_make_one_commit(stream, spark):
    batch = stream.plan()[0]
    specs = [stream.job(batch), stream.job(batch)]
    uris = [stream.save(spec) for spec in specs]
    with ThreadPoolExecutor(2) as pool:
        codes = list(pool.map(lambda uri: run_locally(uri, on_line=lambda _: None), uris))

    reports = [stream.read_reports(spec)[0] for spec in specs]
    assert [r.outcome for r in reports].count("written") == 1
    assert set(codes) <= {0, 10}
    assert all(r.is_done or r.retryable for r in reports)
    assert len(stream.sink_commits()) == 1
    code, (report,) = stream.work(spark, stream.job(batch))
    assert (code, report.outcome) == (0, "verified")


def test_an_interrupted_run_leaves_no_process_behind(stream):
    started = []

    def interrupt(_: str) -> None:
        started.extend(psutil.Process().children(recursive=True))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_locally(stream.save(stream.job(*stream.plan())), on_line=interrupt)
    ours = [p for p in started if "--py-files" in " ".join(command_line(p)) or "job.py" in " ".join(command_line(p))]
    _, alive = psutil.wait_procs(ours, timeout=30)
    assert started
    assert alive == []


LINGERING = """
import threading, time

def load(df, batch):
    threading.Thread(target=time.sleep, args=(3600,)).start()
    pool = df.sparkSession._jvm.java.util.concurrent.Executors.newFixedThreadPool(1)
    pool.submit(df.sparkSession._jvm.java.lang.Thread())
"""


def test_threads_of_a_function_do_not_keep_the_application(stream, tmp_path, monkeypatch):
    (tmp_path / "lingering.py").write_text(LINGERING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spec = stream.job(stream.plan()[0], sink=ForeachBatchSink("lingering:load"))
    timers = []

    def end_at_last(end):
        timers.append(threading.Timer(300, end))
        timers[0].start()

    code = run_locally(stream.save(spec), on_start=end_at_last)
    timers[0].cancel()
    assert [report.outcome for report in stream.read_reports(spec)] == ["written"]
    assert code == 0


def command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_missing_spec_ends_the_run_with_a_clear_message(tmp_path):
    lines = []
    assert run_locally((tmp_path / "gone.json").as_uri(), on_line=lines.append) == 11
    assert any("FDS cannot read the job spec" in line and "gone.json" in line for line in lines)


def test_a_job_logs_its_batches_and_where_sparks_ui_and_history_are_and_leaves_nothing_in_its_working_directory(
    stream, tmp_path, monkeypatch
):
    for name in ("cwd", "events"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    spec = stream.job(*stream.plan())
    events = tmp_path / "events"
    conf = {"spark.ui.enabled": True, "spark.eventLog.enabled": True, "spark.eventLog.dir": events.as_uri()}
    lines = []
    code = run_locally(stream.save(spec), conf=conf, on_line=lines.append)

    assert code == 0, lines
    assert [report.outcome for report in stream.read_reports(spec)] == ["written"] * 3
    assert len(stream.sink_commits()) == 3
    (page,) = (line for line in lines if line.startswith("FDS Spark UI: http://127.0.0.1:"))
    (history,) = (line for line in lines if line.startswith("FDS Spark application: "))
    assert any(history.split(": ")[1] in one.name for one in events.iterdir())
    others = [line.split(",")[0] for line in lines if line not in (page, history)]
    assert others == [f"FDS batch {n} written: 10 rows" for n in range(3)]
    assert not any((tmp_path / "cwd").iterdir())


UDF = """
import os, sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = SparkSession.builder.getOrCreate()
seven = udf(lambda x: x * 7, "long")
rows = spark.read.format("delta").load(sys.argv[1]).select(seven("id").alias("y")).collect()
print("SUM", sum(row["y"] for row in rows), flush=True)
os._exit(0)
"""


def test_a_python_function_over_a_delta_table_does_not_hang(stream, tmp_path):
    application = tmp_path / "udf.py"
    application.write_text(UDF)
    arguments = submit_arguments(str(stream.source), master="local[2]")
    process = subprocess.Popen(
        replace(arguments, application=str(application)).command(),
        env={**os.environ, **arguments.env_vars},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert f"SUM {7 * sum(range(30))}" in out


def test_a_start_uses_the_archive_of_classes_and_survives_a_damaged_one(stream, tmp_path):
    """The start is the same whether there is an archive, none, or one that is broken inside."""
    usual = submit_arguments("x", master="local[2]").class_archive
    assert usual is not None
    # `make test` has made it
    path = usual.make()
    assert path is not None, [path.read_text() for path in usual.folder.glob("*.failed")]
    archive = replace(usual, folder=tmp_path)
    made = Path(shutil.copy(path, tmp_path))
    command = replace(
        submit_arguments("x", master="local[2]"),
        application="--version",
        application_args=(),
    )
    command.conf["spark.driver.defaultJavaOptions"] = " ".join([archive.java_options, *archive.options()])
    insisting = {
        key: text.replace("-Xshare:auto", "-Xshare:on").replace("-Xlog:cds*=off", "")
        for key, text in command.conf.items()
    }
    environment = {**os.environ, **command.env_vars}
    runs = partial(subprocess.run, env=environment, capture_output=True, text=True, check=False)
    assert runs(replace(command, conf=insisting).command()).returncode == 0

    made.chmod(0o644)
    with made.open("r+b") as file:
        file.seek(made.stat().st_size // 2)
        file.write(os.urandom(1 << 20))
    assert runs(replace(command, conf=insisting).command()).returncode != 0
    quiet = runs(command.command())
    assert quiet.returncode == 0
    assert "shared archive" not in quiet.stdout + quiet.stderr
