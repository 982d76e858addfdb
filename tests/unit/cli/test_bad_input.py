"""What people mistype is answered with one line and an exit code, and nothing secret is shown."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import canonical_uri, open_storage
from airflow_provider_fds.errors import EXIT_CONFIGURATION, ConfigurationError

KEYS = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1", "endpoint": "http://127.0.0.1:1"}


def said(capsys, *words, code=2):
    assert main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert captured.err.startswith("fds: ")
    return captured.err + captured.out


@pytest.mark.parametrize("uri", ["s3://my bucket/t", "s3://bu\ncket/t", "gs://my bucket/t", "abfss://a b@acc/t"])
def test_an_impossible_bucket_name_is_refused(capsys, uri):
    assert "expected letters, digits" in said(capsys, "latest", uri)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("region=eu\nwest", "control character"),
        ("region=", "expected a region"),
        ("access_key_id=HUSH\nb", "option 'access_key_id' contains a line break"),
        ("endpoint=http://ho st:1", "expected http(s)://"),
        ("endpoint=nonsense", "expected http(s)://"),
        ("endpoint=http://me:HUSH@", "expected http(s)://"),
        ("retry_config=abc", "must be a mapping"),
    ],
)
def test_an_option_that_cannot_be_sent_is_refused_without_its_value(capsys, option, why):
    shown = said(capsys, "latest", "s3://bucket/t", "--storage-option", option)
    assert why in shown
    assert "HUSH" not in shown


def test_options_of_a_connection_are_checked_in_the_same_way():
    with pytest.raises(ConfigurationError, match="'secret_access_key' contains a line break"):
        open_storage("s3://bucket/t", {**KEYS, "secret_access_key": "HUSH\n"})
    # a key file has lines; what is wrong with this one, its reader says
    with pytest.raises(ConfigurationError, match="missing field"):
        open_storage("gs://bucket/t", {"service_account_key": '{\n"type": "x"}'})


@pytest.mark.parametrize("path", ["/" + "a" * 6000, "/" + "/".join(["a" * 200] * 30), "s3://b/" + "a" * 6000])
def test_a_path_that_is_too_long_is_refused_and_not_repeated(capsys, path):
    shown = said(capsys, "latest", path)
    assert "at most 4,096 are allowed" in shown
    assert len(shown) < 400


@pytest.mark.parametrize("zone", ["America", "a" * 3000, "Europe"])
def test_a_folder_of_time_zones_is_not_a_time_zone(capsys, log_builder, zone):
    log_builder.create()
    option = f"starting_timestamp=2026-01-01 00:00:00 {zone}"
    assert "unknown time zone" in said(capsys, "plan", log_builder.root, "--dry-run", "--option", option)


def test_an_expression_that_is_nested_too_deeply_is_refused_and_not_repeated(capsys, log_builder):
    log_builder.create()
    option = f"exclude_regex={'(' * 5000}{')' * 5000}"
    shown = said(capsys, "plan", log_builder.root, "--dry-run", "--option", option)
    assert "nested too deeply" in shown
    assert len(shown) < 600


@pytest.mark.parametrize("digits", [40, 5000])
def test_a_number_of_any_length_is_refused(capsys, log_builder, digits):
    log_builder.create()
    option = f"max_files_per_batch={'9' * digits}"
    assert "must be an integer" in said(capsys, "plan", log_builder.root, "--dry-run", "--option", option)


SECRET_URIS = ["s3://me:HUSH@bucket/x", "s3://HUSH@bucket/x", "https://me:HUSH@host/x", "s3://bucket/x?token=HUSH"]
MISSPELLED_URIS = ["//me:HUSH@host/x", "s3:me:HUSH@bucket/x", "s3://me:HUSH%40bucket/x"]


@pytest.mark.parametrize("uri", SECRET_URIS + MISSPELLED_URIS)
@pytest.mark.parametrize(
    "words",
    [
        ("latest", "URI"),
        ("status", "x", "--staging", "URI"),
        ("history", "x", "--staging", "URI"),
        ("status", "x", "--full", "--staging", "URI"),
        ("resume", "x", "--why", "y", "--staging", "URI"),
        ("transfer", "x", "--why", "y", "--staging", "URI"),
        ("rewind", "x", "--why", "y", "--to", "1", "--staging", "URI"),
        ("recover", "x", "--why", "y", "--staging", "/tmp/none", "--sink", "URI"),
        ("plan", "URI", "--dry-run"),
        ("plan", "/tmp/none", "--staging", "URI", "--output", "json"),
        ("run", "/tmp/none", "--staging", "/tmp/none", "--checkpoint", "/tmp/none/c", "--sink", "URI"),
    ],
)
def test_no_command_shows_what_is_secret_in_a_uri(capsys, uri, words):
    shown = said(capsys, *(uri if word == "URI" else word for word in words))
    assert "HUSH" not in shown
    # a misspelled one may be refused before it is looked at
    assert "***" in shown or uri in MISSPELLED_URIS


def test_a_uri_with_a_user_is_refused_wherever_a_storage_is_opened():
    for uri in SECRET_URIS[:2]:
        with pytest.raises(ConfigurationError, match="user info") as caught:
            canonical_uri(uri)
        assert "HUSH" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="unknown scheme") as caught:
        canonical_uri(SECRET_URIS[2])
    assert "HUSH" not in str(caught.value)


class PanicException(BaseException):
    """What ends a call of the client that cannot be sent."""


@pytest.mark.parametrize("error", [PanicException("password=HUSH"), OSError("password=HUSH"), RecursionError("x")])
def test_an_unexpected_error_is_also_one_line(capsys, monkeypatch, error):
    from airflow_provider_fds.cli.commands import plan

    def fail(_):
        raise error

    monkeypatch.setattr(plan, "latest", fail)
    shown = said(capsys, "latest", "/tmp/none", code=1)
    assert type(error).__name__ in shown
    assert "HUSH" not in shown
    monkeypatch.setenv("FDS_TRACEBACK", "1")
    with pytest.raises(type(error)):
        main(["latest", "/tmp/none"])


@pytest.mark.parametrize(
    "told",
    [
        {"fds": 1},
        {"fds": 1, "stream": "orders"},
        {"fds": 1, "stream": "orders", "uuid": "u", "epoch": "one", "batch_id": 0, "end": "{}", "digest": "d"},
        {"fds": 1, "stream": "orders", "uuid": "u", "epoch": 1, "batch_id": None, "end": "{}", "digest": "d"},
        {"fds": 1, "stream": "orders", "uuid": ["u"], "epoch": 1, "batch_id": 0, "end": "{}", "digest": "d"},
        {"fds": 1, "stream": "orders", "uuid": "u", "epoch": -1, "batch_id": 0, "end": "{}", "digest": "d"},
        {"fds": 1, "stream": "orders", "uuid": "u", "epoch": 1, "fence": True},
        {"fds": True, "stream": "orders", "uuid": "u", "epoch": 1, "fence": 1},
        {"fds": 1, "stream": "orders", "uuid": "u", "epoch": 1, "batch_id": 0, "end": "x", "digest": "d", "sink": 1},
        {"fds": 1, "stream": "orders", "uuid": "u", "epoch": 1, "batch_id": 0, "end": "junk", "digest": "d"},
    ],
)
def test_recover_ignores_what_others_write_to_the_sink(capsys, tmp_path, told):
    from tests.conftest import LogBuilder

    sink = LogBuilder(tmp_path / "sink")
    sink.create()
    for text in (json.dumps(told), "[" * 100_000, "{" + '"a":{' * 50_000):
        sink.commit(sink.add(), userMetadata=text)
    words = ("--staging", tmp_path / "staging", "--sink", sink.root, "--table", tmp_path / "t", "--deployment", "d")
    said(capsys, "recover", "orders", *words, "--why", "x", "--yes")


@pytest.mark.parametrize("output", ["text", "json"])
def test_an_error_names_its_reason_code(tmp_path, capsys, output):
    words = ["run", str(tmp_path / "nothing"), "--stream", "s", "--staging", str(tmp_path / "staging")]
    words += ["--sink", str(tmp_path / "sink"), "--checkpoint", str(tmp_path / "cp.json"), "--max-batches", "0"]
    assert main([*words, "--output", output]) == EXIT_CONFIGURATION
    captured = capsys.readouterr()
    assert captured.err.startswith("fds: [INVALID_CONFIGURATION] --max-batches must be 1 or more")
    if output == "json":
        error = json.loads(captured.out)["error"]
        assert (error["reason_code"], error["table"], error["version"], error["operation"]) == (
            "INVALID_CONFIGURATION",
            None,
            None,
            None,
        )
