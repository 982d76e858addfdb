"""The page "Delta streams": its API in Airflow's real application, with sessions, rights and staging."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.entries.epoch_entries import Created
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.stream.monitoring.status import StreamStatus
from airflow_provider_fds.stream.monitoring.status_file import write_status_file
from tests.unit.stream.conftest import bench

__all__ = ["bench"]

DEPLOYMENT = "http://fds.test"
SECRET = "sUpErSeCrEt123"
#: The context of the only attempt of a task.
FIRST_OF_ONE = {"ti": SimpleNamespace(try_number=1, max_tries=0)}


@pytest.fixture(scope="session")
def airflow_app(airflow_database):
    """Airflow's application with the plugin of this tree, whatever is installed."""
    from airflow import plugins_manager
    from airflow.api_fastapi.app import create_app

    from airflow_provider_fds.ui.plugin import FdsPlugin

    with pytest.MonkeyPatch.context() as patch:
        # otherwise everybody has a session
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
        if hasattr(plugins_manager, "get_fastapi_plugins"):
            patch.setattr(plugins_manager, "get_fastapi_plugins", lambda: (FdsPlugin.fastapi_apps, []))
        else:
            # Airflow 3.1
            patch.setattr(plugins_manager, "initialize_fastapi_plugins", lambda: None)
            patch.setattr(plugins_manager, "fastapi_apps", FdsPlugin.fastapi_apps)
            patch.setattr(plugins_manager, "fastapi_root_middlewares", [])
        return create_app(apps="core")


@pytest.fixture
def client_of(airflow_app):
    """Return a client of the application, as a user with a role; ``None`` is nobody."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    def make(role="admin"):
        client = TestClient(airflow_app, base_url="http://fds.test")
        if role is not None:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="anna", role=role))
            client.headers["Authorization"] = f"Bearer {token}"
        return client

    return make


@pytest.fixture
def staging(tmp_path, monkeypatch):
    uri = (tmp_path / "staging").as_uri()
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", uri)
    return open_storage(uri)


@pytest.fixture
def dag_id(airflow_database):
    """A DAG that Airflow knows."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.merge(DagBundleModel(name="ui"))
        session.flush()
        session.merge(DagModel(dag_id="orders_dag", bundle_name="ui", is_stale=False))
    yield "orders_dag"
    with create_session() as session:
        session.execute(delete(DagModel).where(DagModel.dag_id == "orders_dag"))


def add_stream(staging, name="orders", *, dag_id=None, deployment=DEPLOYMENT, **fields):
    """Create a stream with a ledger and a status file, and return its id."""
    from airflow_provider_fds.stream.monitoring.stream_id import StreamId

    actor = Actor(deployment=deployment, dag_id=dag_id, task_id="ingest", run_id="run-1")
    ledger = Ledger(staging, name)
    ledger.execute(Created(uuid=f"uuid-{name}", name=name, table="s3://lake/orders", deployment=deployment), actor)
    found = {"condition": "waiting", "lag_versions": 2, "uuid": f"uuid-{name}", "deployment": deployment}
    status = StreamStatus(name=name, table="s3://lake/orders", phase="open", **{**found, **fields})
    write_status_file(staging, status, ledger.state, written_by="run", actor=actor)
    return str(StreamId.of(staging.uri, name))


def test_the_list_has_a_row_for_each_stream(staging, client_of, dag_id):
    stream_id = add_stream(staging, dag_id=dag_id)
    found = client_of().get("/fds/api/streams").raise_for_status().json()
    assert (found["staging"], found["problems"]) == ([staging.uri], [])
    (row,) = found["streams"]
    assert (row["id"], row["name"], row["dag_id"], row["task_id"]) == (stream_id, "orders", dag_id, "ingest")
    assert (row["condition"], row["lag_versions"], row["stale"]) == ("waiting", 2, False)
    assert (
        datetime.now(UTC) >= datetime.fromisoformat(found["generated_at"]) >= datetime.fromisoformat(row["observed_at"])
    )


def test_a_stream_whose_dag_is_gone_says_so_with_one_query_for_all(staging, client_of, dag_id, monkeypatch):
    from sqlalchemy import event

    from airflow_provider_fds.ui import dags

    monkeypatch.setattr(dags, "_FRESH_SECONDS", 0.0)
    add_stream(staging, "here", dag_id=dag_id)
    gone = add_stream(staging, "gone", dag_id="deleted")
    add_stream(staging, "never")
    # the DAG of another installation is not looked for
    add_stream(staging, "elsewhere", dag_id="deleted", deployment="production")
    set_dag(dag_id, owners="anna, data-platform")
    client, asked = client_of(), []

    def on_query(_connection, _cursor, statement, *_):
        if "owners" in statement and "dag.dag_id IN" in statement:
            asked.append(statement)

    from airflow.settings import engine

    event.listen(engine, "before_cursor_execute", on_query)
    try:
        rows = {row["name"]: row for row in client.get("/fds/api/streams").raise_for_status().json()["streams"]}
    finally:
        event.remove(engine, "before_cursor_execute", on_query)
    assert {name for name, row in rows.items() if row["dag_is_gone"]} == {"gone"}
    assert {name: row["dag_owners"] for name, row in rows.items() if row["dag_owners"]} == {
        "here": ["anna", "data-platform"]
    }
    assert len(asked) == 1
    assert rows["gone"]["last_run_at"] == rows["gone"]["observed_at"]
    assert client.get(f"/fds/api/streams/{gone}").json()["dag_is_gone"] is True
    # Airflow keeps a DAG that left its bundle
    set_dag(dag_id, is_stale=True)
    rows = {row["name"]: row for row in client.get("/fds/api/streams").json()["streams"]}
    assert {name for name, row in rows.items() if row["dag_is_gone"]} == {"gone", "here"}


def set_dag(dag_id, **values):
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == dag_id).values(**values))


def test_an_empty_installation_has_an_empty_list(staging, client_of):
    found = client_of().get("/fds/api/streams").raise_for_status().json()
    assert (found["streams"], found["problems"]) == ([], [])


def test_a_stream_without_a_status_file_is_named(staging, client_of):
    add_stream(staging)
    staging.delete(".status/orders.json")
    found = client_of().get("/fds/api/streams").raise_for_status().json()
    assert found["streams"] == []
    assert found["problems"][0]["message"].startswith("Stream orders has no status file yet.")
    # who may not see the stream does not learn its name
    assert client_of("viewer").get("/fds/api/streams").raise_for_status().json()["problems"] == []


def test_a_folder_that_cannot_be_read_is_a_problem_and_hides_no_other(staging, client_of, monkeypatch):
    add_stream(staging)
    monkeypatch.setenv("AIRFLOW__FDS__UI_STAGING", f"{staging.uri},s3://nowhere/x")
    # it exists, but is not one for S3
    monkeypatch.setenv("AIRFLOW_CONN_HTTP_HERE", "http://lake.test")
    monkeypatch.setenv("AIRFLOW__FDS__STAGING_CONN_ID", "http_here")
    found = client_of().get("/fds/api/streams").raise_for_status().json()
    assert [row["name"] for row in found["streams"]] == ["orders"]
    assert [problem["staging"] for problem in found["problems"]] == ["s3://nowhere/x"]
    assert "'http_here'" in found["problems"][0]["message"]


def test_a_connection_that_does_not_exist_is_a_problem_of_every_folder(staging, client_of, monkeypatch):
    add_stream(staging)
    monkeypatch.setenv("AIRFLOW__FDS__UI_STAGING", f"{staging.uri},s3://nowhere/x")
    monkeypatch.setenv("AIRFLOW__FDS__STAGING_CONN_ID", "missing")
    found = client_of().get("/fds/api/streams").raise_for_status().json()
    assert [problem["staging"] for problem in found["problems"]] == [staging.uri, "s3://nowhere/x"]
    assert all("'missing'" in problem["message"] for problem in found["problems"])


def test_the_page_of_a_stream_has_its_ledger(staging, client_of):
    stream_id = add_stream(staging)
    found = client_of().get(f"/fds/api/streams/{stream_id}").raise_for_status().json()
    assert (found["name"], found["epoch"], found["may_act"]) == ("orders", 1, True)
    assert [one["lag_versions"] for one in found["samples"]] == [2]
    assert (found["batches"], found["planned"], found["skipped"]) == ([], [], [])


@pytest.mark.parametrize("path", ["/fds/api/streams", "/fds/api/streams/x"])
def test_without_a_session_nothing_is_answered(staging, client_of, path):
    answer = client_of(None).get(path)
    assert (answer.status_code, answer.json()) == (401, {"detail": "Not authenticated"})


def test_a_session_of_the_ui_is_enough(staging, client_of):
    client = client_of()
    token = client.headers.pop("Authorization").removeprefix("Bearer ")
    client.cookies.set("_token", token)
    assert client.get("/fds/api/streams").status_code == 200


@pytest.mark.parametrize("stream_id", ["x", "00000000-orders", "orders"])
def test_an_unknown_stream_is_not_found(staging, client_of, stream_id):
    add_stream(staging)
    answer = client_of().get(f"/fds/api/streams/{stream_id}")
    assert answer.status_code == 404
    assert stream_id in answer.json()["detail"]


@pytest.mark.parametrize(
    ("role", "seen", "may_act"),
    [("viewer", ["with_dag"], False), ("user", ["with_dag"], True), ("op", ["elsewhere", "with_dag", "without"], True)],
)
def test_a_stream_is_seen_by_those_who_may_read_its_dag_else_its_variable(
    staging, client_of, dag_id, role, seen, may_act
):
    ids = {
        "with_dag": add_stream(staging, "with_dag", dag_id=dag_id),
        "without": add_stream(staging, "without"),
        # the DAG of another installation, of the same name
        "elsewhere": add_stream(staging, "elsewhere", dag_id=dag_id, deployment="production"),
    }
    client = client_of(role)
    assert [row["name"] for row in client.get("/fds/api/streams").json()["streams"]] == seen
    for name, stream_id in ids.items():
        answer = client.get(f"/fds/api/streams/{stream_id}")
        assert answer.status_code == (200 if name in seen else 404)
    assert client.get(f"/fds/api/streams/{ids['with_dag']}").json()["may_act"] is may_act


@pytest.mark.parametrize("path", ["", "/actions/hold/preview", "/actions/hold", "/actions/explode"])
def test_a_stream_that_the_user_may_not_see_answers_as_one_that_does_not_exist(staging, client_of, path):
    client, secret = client_of("viewer"), add_stream(staging, "secret")
    missing = secret.replace("secret", "missing")

    def ask(stream_id):
        url = f"/fds/api/streams/{stream_id}{path}"
        answer = client.post(url, json=body(expected="x")) if path else client.get(url)
        return answer.status_code, answer.text.replace(stream_id, "ID"), sorted(answer.headers)

    assert ask(secret) == ask(missing)
    assert ask(secret)[0] == 404
    assert kinds(staging, "secret") == ["created"]


def test_a_dag_that_was_deleted_does_not_hide_its_stream_from_everybody(staging, client_of):
    stream_id = add_stream(staging, dag_id="deleted")
    assert client_of().get(f"/fds/api/streams/{stream_id}").status_code == 200
    assert client_of("viewer").get(f"/fds/api/streams/{stream_id}").status_code == 404
    assert len(client_of().get("/fds/api/streams").json()["streams"]) == 1


def test_no_answer_has_a_credential(staging, client_of, monkeypatch):
    connection = {"conn_type": "aws", "login": "AKIAEXAMPLE", "password": SECRET, "extra": {"region_name": "x"}}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW__FDS__STAGING_CONN_ID", "store")
    # nothing listens there
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AIRFLOW__FDS__UI_STAGING", f"{staging.uri},s3://elsewhere/x")
    stream_id = add_stream(staging, problem=f"GET https://h/x?X-Amz-Signature={SECRET} failed", reason_code="X")
    client = client_of()
    texts = [client.get(path).text for path in ("/fds/api/streams", f"/fds/api/streams/{stream_id}")]
    assert "orders" in texts[0]
    assert all(SECRET not in text and "AKIAEXAMPLE" not in text for text in texts)


def test_the_page_itself_is_served_and_holds_no_data(client_of):
    from airflow_provider_fds.ui.app import _STATIC

    if not (_STATIC / "index.html").is_file():
        pytest.skip("the page is not in this tree")
    answer = client_of(None).get("/fds/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")


def test_the_api_has_no_open_description_of_itself(client_of):
    assert {client_of(None).get(f"/fds/{path}").status_code for path in ("docs", "redoc", "openapi.json")} == {404}


@pytest.mark.parametrize("is_lazy", ["True", "False"])
def test_airflow_finds_the_plugin_once_however_it_discovers_providers(airflow_home, monkeypatch, is_lazy):
    code = (
        "from airflow import plugins_manager as p; import json, sys; "
        "(found,) = [one for one in p.get_plugin_info() if one['name'] == 'fds']; "
        "errors = p.get_import_errors() if hasattr(p, 'get_import_errors') else p.import_errors; "
        "print(json.dumps([found['external_views'], found['fastapi_apps'], 'fastapi' in sys.modules, "
        "'airflow_provider_fds.ui.app' in sys.modules, errors]))"
    )
    monkeypatch.setenv("AIRFLOW__CORE__LAZY_DISCOVER_PROVIDERS", is_lazy)
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    views, apps, _, is_app_imported, errors = json.loads(ran.stdout.splitlines()[-1])
    assert [(view["name"], view["href"], view["destination"]) for view in views] == [("Delta streams", "/fds/", "nav")]
    assert [(app["url_prefix"], app["name"]) for app in apps] == [("/fds", "Delta streams")]
    assert not is_app_imported
    assert errors == {}


def test_the_plugin_imports_neither_fastapi_nor_the_rest_of_the_package(airflow_home):
    code = (
        "import sys, airflow.plugins_manager, airflow.configuration; before = set(sys.modules); "
        "import airflow_provider_fds.ui.plugin; "
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('airflow.')))"
    )
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    modules = [
        "airflow_provider_fds",
        "airflow_provider_fds.lazy",
        "airflow_provider_fds.ui",
        "airflow_provider_fds.ui.plugin",
    ]
    assert set(json.loads(ran.stdout.splitlines()[-1].replace("'", '"'))) <= set(modules)


def body(**fields):
    return {"arguments": {}, "why": "because", "request_id": "6f9b7f3e-7a8c-4c2f-9d4e-0c9c8f4f2f11", **fields}


@pytest.fixture
def acting(staging, client_of, dag_id):
    """A stream, and a function that posts to one of its actions."""
    stream_id = add_stream(staging, dag_id=dag_id)

    def post(path, values, *, client=None, **kwargs):
        return (client or client_of()).post(f"/fds/api/streams/{stream_id}/actions/{path}", json=values, **kwargs)

    return post


def kinds(staging, name="orders"):
    return [entry.action.kind for entry in Ledger(staging, name).entries()]


@pytest.fixture
def audit_log(airflow_database):
    """Return a function that returns the new entries of Airflow's audit log."""
    from airflow.models import Log
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    with create_session() as session:
        before = session.scalar(select(func.max(Log.id))) or 0

    def read():
        with create_session() as session:
            return [
                (one.event, one.owner, one.dag_id, one.task_id, json.loads(one.extra))
                for one in session.scalars(select(Log).where(Log.id > before).order_by(Log.id))
            ]

    return read


def test_an_action_is_in_the_audit_log_of_airflow_with_its_dag_and_without_credentials(
    acting, client_of, staging, dag_id, audit_log
):
    preview = acting("hold/preview", {"arguments": {}}).json()
    assert acting("hold", body(expected="x"), client=client_of("viewer")).status_code == 403
    assert audit_log() == []
    why = f"https://h/x?X-Amz-Signature={SECRET} is old"
    acting("hold", body(expected=preview["expected"], why=why)).raise_for_status()
    ((event, owner, dag, task, extra),) = audit_log()
    assert (event, owner, dag, task) == ("fds_hold", "anna", dag_id, "ingest")
    assert (extra["stream"], extra["staging"], extra["arguments"]) == ("orders", staging.uri, {})
    assert extra["request_id"] == body()["request_id"]
    assert "is old" in extra["why"]
    assert SECRET not in str(extra)
    # what is refused was asked for, too
    assert acting("retire", body(expected="x", request_id="6f9b7f3e-7a8c-4c2f-9d4e-0c9c8f4f2f12")).status_code == 409
    assert [one[0] for one in audit_log()] == ["fds_hold", "fds_retire"]


def test_a_person_holds_a_stream_on_the_page(acting, staging, client_of):
    preview = acting("hold/preview", {"arguments": {}}).raise_for_status().json()
    assert (preview["allowed"], preview["refusal"]) == (True, None)
    assert "is held until `fds resume`" in "\n".join(preview["preview"])
    assert kinds(staging) == ["created"]
    first = acting("hold", body(expected=preview["expected"])).raise_for_status().json()
    assert first == {"done": True, "message": "stream orders: hold is recorded as ledger entry 1."}
    # a lost answer: the page asks again
    assert acting("hold", body(expected=preview["expected"])).json() == first
    assert kinds(staging) == ["created", "held"]
    (entry,) = list(Ledger(staging, "orders").entries())[1:]
    assert (entry.actor.user, entry.action.why) == ("anna", "because")
    (row,) = client_of().get("/fds/api/streams").json()["streams"]
    assert (row["condition"], row["problem"]) == ("held", "The stream is on hold: because")
    found = client_of().get(f"/fds/api/streams/{row['id']}").json()
    assert [(one["action"], one["by"]) for one in found["decisions"]] == [("held", "anna@airflow-ui")]


def test_a_ledger_that_changed_since_the_preview_is_a_conflict(acting, staging):
    expected = acting("retire/preview", {"arguments": {}}).json()["expected"]
    hold = acting("hold/preview", {"arguments": {}}).json()["expected"]
    acting("hold", body(expected=hold)).raise_for_status()
    answer = acting("retire", body(expected=expected, request_id="6f9b7f3e-7a8c-4c2f-9d4e-0c9c8f4f2f12"))
    assert answer.status_code == 409
    assert "has changed since the preview" in answer.json()["detail"]
    assert kinds(staging) == ["created", "held"]


@pytest.mark.parametrize(
    ("path", "values", "said"),
    [
        ("skip/preview", {"arguments": {}}, "version is needed"),
        ("skip/preview", {"arguments": {"colour": "red"}}, "skip has no argument colour"),
        ("skip/preview", {"arguments": {"version": [3]}}, "arguments.version"),
        ("hold", body(expected="x", why=" "), "why: "),
        ("hold", body(expected="x", request_id="again"), "request_id: "),
        ("hold", body(), "expected: "),
    ],
)
def test_bad_arguments_are_said_in_words(acting, path, values, said):
    answer = acting(path, values)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


def test_an_unknown_action_is_not_found(acting):
    assert acting("recover/preview", {"arguments": {}}).status_code == 404
    assert "hold" in acting("explode", body(expected="x")).json()["detail"]


@pytest.mark.parametrize(("role", "code"), [(None, 401), ("viewer", 403), ("user", 200)])
def test_acting_needs_the_right_to_edit_the_dag(acting, client_of, staging, role, code):
    client = client_of(role)
    answer = acting("hold/preview", {"arguments": {}}, client=client)
    assert answer.status_code == code
    expected = "x" if code != 200 else answer.json()["expected"]
    assert acting("hold", body(expected=expected), client=client).status_code == code
    assert kinds(staging) == (["created", "held"] if code == 200 else ["created"])


def test_a_stream_without_a_dag_needs_the_right_to_edit_variables(staging, client_of):
    stream_id = add_stream(staging)
    path = f"/fds/api/streams/{stream_id}/actions/hold/preview"
    codes = {role: client_of(role).post(path, json={"arguments": {}}).status_code for role in ("user", "op")}
    assert codes == {"user": 404, "op": 200}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_another_site_cannot_act_with_the_session_of_the_ui(acting, client_of, headers, code):
    client = client_of()
    client.cookies.set("_token", client.headers.pop("Authorization").removeprefix("Bearer "))
    answer = acting("hold/preview", {"arguments": {}}, client=client, headers=headers)
    # FastAPI may refuse a body that is not JSON before
    assert answer.status_code == code or (code, answer.status_code) == (415, 422)


def test_a_stream_of_another_installation_cannot_be_changed(staging, client_of):
    stream_id = add_stream(staging, deployment="production")
    answer = client_of().post(f"/fds/api/streams/{stream_id}/actions/hold/preview", json={"arguments": {}})
    assert answer.status_code == 409
    assert "belongs to the Airflow installation 'production'" in answer.json()["detail"]


def test_an_owner_runs_as_long_as_airflow_says_so(airflow_database):
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ui.owners import owner_runs

    runs = owner_runs(DEPLOYMENT)
    task = {"kind": "airflow", "dag_id": "none", "run_id": "r", "task_id": "t"}
    assert runs(Owner(deployment=DEPLOYMENT, **task)) is False
    assert runs(Owner(deployment=DEPLOYMENT, is_three_task=True, **task)) is False
    assert runs(Owner(deployment="production", **task)) is None
    assert runs(Owner(kind="cli", deployment=DEPLOYMENT, run_id="anna@host:1")) is None
    assert runs(Owner.of_plan(DEPLOYMENT)) is False


def test_a_thousand_streams_are_one_answer_and_only_changed_files_are_read_again(
    staging, client_of, dag_id, record_property
):
    for number in range(1_000):
        name = f"stream_{number:04}"
        staging.put(f"{name}/ledger/x", b"")
        status = StreamStatus(name=name, table=f"s3://lake/{name}", phase="open", condition="waiting", lag_versions=1)
        actor = Actor(deployment=DEPLOYMENT, dag_id=dag_id, task_id="ingest", run_id="r")
        for _ in range(3):
            write_status_file(staging, replace(status, deployment=DEPLOYMENT), None, written_by="run", actor=actor)
    client = client_of("viewer")
    client.get("/fds/api/streams/x")
    took = []
    for _ in range(3):
        began = time.perf_counter()
        answer = client.get("/fds/api/streams")
        took.append(round(time.perf_counter() - began, 3))
        time.sleep(1.1)
    assert len(answer.json()["streams"]) == 1_000
    # seconds: all files read; none changed
    record_property("seconds", took)
    print("seconds", took, "bytes", len(answer.content))


def test_a_task_writes_the_status_file_at_its_end_also_if_it_fails(
    bench, log_builder, tmp_path, airflow_database, monkeypatch, caplog
):
    from airflow_provider_fds.errors import StoppedError
    from airflow_provider_fds.hooks.stats import sending_status
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream.monitoring.status_row import read_status_file

    log_builder.create()
    log_builder.append(2)
    session = bench.session()
    with sending_status(session, FIRST_OF_ONE):
        work = session.begin(sink := DeltaAppendSink(str(tmp_path / "sink")))
        bench.report(session, work, session.job(work, sink))
        session.collect(work)
    staging = session.connected.staging
    row = read_status_file(staging, "orders")
    assert (row.dag_id, row.task_id, row.run_id, row.written_by) == ("dag", "ingest", "run-1", "run")
    assert (row.condition, row.problem, row.last_batch.batch_id) == ("up_to_date", None, 0)
    assert row.last_batch.committed_at <= row.written_at
    with pytest.raises(StoppedError), sending_status(bench.session("run-2"), FIRST_OF_ONE):
        raise StoppedError("version 3 deletes rows", table="t", version=3)
    failed = read_status_file(staging, "orders")
    assert failed.problem.endswith("version 3 deletes rows")
    assert failed.run_id == "run-2"
    session = bench.session("run-3", stream=bench.stream(min_batch_bytes="1g"))
    log_builder.append(2, timestamp_ms=int(time.time() * 1000))
    with sending_status(session, FIRST_OF_ONE):
        reason = session.begin(sink).reason
    waiting = read_status_file(staging, "orders")
    assert waiting.waits_for == reason != ""
    staging.delete(".status/orders.json")
    (bench.staging / ".status").rmdir()
    (bench.staging / ".status").write_text("a file, not a folder")
    with sending_status(bench.session("run-4"), FIRST_OF_ONE):
        pass
    assert "The status of the stream was not reported" in caplog.text


def test_an_attempt_that_airflow_repeats_is_no_failure_yet_that_needs_a_person(
    bench, log_builder, tmp_path, airflow_database
):
    from airflow_provider_fds.errors import BatchFailedError
    from airflow_provider_fds.hooks.stats import sending_status
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream.monitoring.status_row import read_status_file

    log_builder.create()
    found = []

    def fail(session, attempt):
        with sending_status(session, {"ti": SimpleNamespace(try_number=attempt, max_tries=1)}):
            session.begin(DeltaAppendSink(str(tmp_path / "sink")))
            raise BatchFailedError("Spark ended early")

    for attempt in (1, 2):
        session = bench.session("run-1")
        with pytest.raises(BatchFailedError):
            fail(session, attempt)
        row = read_status_file(session.connected.staging, "orders")
        found.append((row.condition, row.failure.runs, row.failure.will_retry, row.needs_attention))
    assert found == [("failing", 1, True, False), ("failing", 2, False, True)]


@pytest.mark.parametrize("way", ["SIGTERM", "timeout"])
def test_a_task_that_airflow_ends_writes_the_status_file(bench, log_builder, tmp_path, airflow_database, way):
    from airflow.sdk.exceptions import AirflowTaskTimeout

    from airflow_provider_fds.hooks.stats import sending_status
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream.monitoring.status_row import read_status_file

    log_builder.create()
    log_builder.append(2)
    session, killed = bench.session(), []

    def on_kill(*_):
        while (found := read_status_file(session.connected.staging, "orders")) is None:
            time.sleep(0.01)
        killed.append(found)

    def run():
        with sending_status(session, FIRST_OF_ONE):
            session.begin(DeltaAppendSink(str(tmp_path / "sink")))
            end()

    def end():
        if way == "SIGTERM":
            signal.raise_signal(signal.SIGTERM)
            raise ConnectionError("Spark was stopped")
        raise AirflowTaskTimeout("60 s are over")

    before = signal.signal(signal.SIGTERM, on_kill)
    try:
        with pytest.raises((ConnectionError, AirflowTaskTimeout)):
            run()
    finally:
        signal.signal(signal.SIGTERM, before)
    files = killed or [read_status_file(session.connected.staging, "orders")]
    assert [(one.condition, one.planned_batches, one.run_id) for one in files] == [("failing", 1, "run-1")]
    said = "Airflow killed the task" if way == "SIGTERM" else "The task was ended by AirflowTaskTimeout: 60 s are over"
    assert f": [TASK_KILLED] {said}" in files[0].problem
    # the end of the body is the same failure
    assert read_status_file(session.connected.staging, "orders").failures == files[0].failures


def test_the_monitors_trigger_writes_the_files_without_metrics(bench, log_builder, tmp_path, airflow_database):
    from airflow_provider_fds import DeltaStreamMonitorTrigger
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream.monitoring.monitor import ROUNDS_PER_FILE, StreamMonitor
    from airflow_provider_fds.stream.monitoring.status_row import read_status_file

    log_builder.create()
    session, _ = bench.run_once(DeltaAppendSink(str(tmp_path / "sink")))
    log_builder.append(1)
    staging = session.connected.staging
    trigger = DeltaStreamMonitorTrigger(staging=staging.uri, interval=60, until=0)
    trigger._round(StreamMonitor(trigger._context, places_for=trigger._places_for), None)
    row = read_status_file(staging, "orders")
    assert (row.written_by, row.lag_versions, row.pending_files) == ("monitor", 1, 1)
    assert row.next_within_seconds == 60 * ROUNDS_PER_FILE
