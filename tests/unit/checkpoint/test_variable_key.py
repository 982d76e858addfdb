"""The key of a stream's Airflow Variable is never one whose value Airflow hides."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_fds.checkpoint.variable import VariableCheckpointStore, variable_key
from airflow_provider_fds.errors import ConfigurationError

#: ``DEFAULT_SENSITIVE_FIELDS`` of the secrets masker of Airflow 3.3, and how it looks for them in a key.
AIRFLOW_HIDES = [
    "access_key",
    "access_token",
    "api_key",
    "apikey",
    "auth_header",
    "authorization",
    "bearer",
    "connection_string",
    "dsn",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "proxy",
    "proxy_password",
    "proxies",
    "secret",
    "service_account",
    "service_key",
    "token",
    "keyfile_dict",
    "webhook_url",
]


def is_hidden(key):
    normalized = re.sub(r"\W+", "_", key.strip().lower())
    return any(word in normalized for word in AIRFLOW_HIDES)


def test_a_usual_stream_is_found_under_its_name():
    assert variable_key("orders_to_bronze") == "fds.orders_to_bronze"
    assert VariableCheckpointStore("orders").home == "Airflow Variable 'fds.orders'"
    assert VariableCheckpointStore("orders", key="mine").key == "mine"


@pytest.mark.parametrize(
    ("stream", "key"),
    [
        ("auth_tokens", "fds.auth_t~okens"),
        ("API-Key.usage", "fds.A~PI-Key.usage"),
        ("proxy_password", "fds.p~roxy_p~assword"),
        ("rides.dsn", "fds.rides.d~sn"),
    ],
)
def test_a_word_that_airflow_would_mask_is_split(stream, key):
    assert is_hidden(f"fds.{stream}")
    assert variable_key(stream) == key


@given(
    st.lists(
        st.one_of(st.sampled_from(AIRFLOW_HIDES), st.text("abdeknostwyAPIKEY._-~"[:-1], min_size=1, max_size=4)),
        min_size=1,
        max_size=6,
    ).map("".join)
)
@settings(deadline=None)
@example("secretsecret")
@example("ttokenoken")
def test_no_key_is_hidden_and_no_two_streams_share_one(stream):
    if stream.startswith(".") or len(stream) > 100:
        return
    key = variable_key(stream)
    assert not is_hidden(key)
    assert key.replace("~", "") == f"fds.{stream}"
    assert len(key) <= 250


def test_a_name_that_is_invalid_has_no_key():
    with pytest.raises(ConfigurationError):
        variable_key("a/b")
