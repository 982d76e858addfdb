"""Where Hadoop's configuration says that the ResourceManagers are."""

from __future__ import annotations

import pytest

from airflow_provider_fds.spark.clusters.hadoop_conf import resource_managers, wants_kerberos

RM = "yarn.resourcemanager"


@pytest.fixture
def conf_of(tmp_path):
    """Return the environment of a worker with these settings in a file of Hadoop's configuration."""

    def make(settings, name="yarn-site.xml", variable="HADOOP_CONF_DIR", folder="conf"):
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        lines = [f"<property><name> {key}</name><value>{value}\n</value></property>" for key, value in settings.items()]
        (place / name).write_text(f"<?xml version='1.0'?>\n<configuration>{''.join(lines)}</configuration>")
        return {variable: str(place)}

    return make


@pytest.mark.parametrize(
    ("settings", "addresses"),
    [
        ({f"{RM}.hostname": "rm"}, ("http://rm:8088",)),
        ({f"{RM}.hostname": "rm", f"{RM}.webapp.address": f"${{{RM}.hostname}}:18088"}, ("http://rm:18088",)),
        ({f"{RM}.hostname": "rm", "yarn.http.policy": "HTTPS_ONLY"}, ("https://rm:8090",)),
        (
            {f"{RM}.webapp.https.address": "rm:443", "yarn.http.policy": "HTTPS_ONLY", f"{RM}.hostname": "x"},
            ("https://rm:443",),
        ),
        (
            {
                f"{RM}.ha.enabled": "true",
                f"{RM}.ha.rm-ids": "rm1, rm2",
                f"{RM}.hostname.rm1": "one",
                f"{RM}.webapp.address.rm2": "two:9088",
            },
            ("http://one:8088", "http://two:9088"),
        ),
        # Hadoop's defaults, and a setting without the one that it refers to
        ({f"{RM}.hostname": "0.0.0.0"}, ()),
        ({f"{RM}.webapp.address": f"${{{RM}.hostname}}:8088"}, ()),
        ({f"{RM}.hostname": f"${{{RM}.hostname}}"}, ()),
        ({}, ()),
    ],
)
def test_addresses_are_those_that_hadoops_clients_use(conf_of, settings, addresses):
    assert resource_managers(conf_of(settings)) == addresses


def test_the_first_folder_with_the_file_counts(conf_of):
    only_core = conf_of({}, "core-site.xml")
    yarn = conf_of({f"{RM}.hostname": "rm"}, variable="YARN_CONF_DIR", folder="yarn")
    assert resource_managers(only_core | yarn) == ("http://rm:8088",)


def test_a_worker_without_a_readable_file_knows_no_resource_manager(tmp_path):
    assert resource_managers({}) == ()
    assert resource_managers({"HADOOP_CONF_DIR": str(tmp_path)}) == ()
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    assert resource_managers({"HADOOP_CONF_DIR": str(tmp_path)}) == ()


def test_kerberos_is_what_hadoop_authenticates_by_if_it_says_so(conf_of):
    assert wants_kerberos(conf_of({"hadoop.security.authentication": "Kerberos"}, "core-site.xml"))
    assert not wants_kerberos(conf_of({"hadoop.security.authentication": "simple"}, "core-site.xml"))
    assert not wants_kerberos({})
