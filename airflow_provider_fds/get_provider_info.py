"""The package's description for Airflow: the entry point ``apache_airflow_provider``."""

from __future__ import annotations

from typing import Any

_INTEGRATION = "Delta Lake (FDS)"

#: Those in which ``operators/lineage/asset_event.py`` writes a sink's URI, except ``file``, which Airflow has itself.
_ASSET_SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "wasb", "wasbs", "hdfs")


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description in the form of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-provider-fds",
        "name": "FDS",
        "description": "Incremental Delta Lake ingestion, on Spark.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://delta.io/",
                # in the project; Airflow itself does not read it
                "logo": "/docs/integration-logos/fds.svg",
                "tags": ["software"],
            }
        ],
        "operators": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_provider_fds.operators.delta_fleet",
                    "airflow_provider_fds.operators.delta_ingest",
                    "airflow_provider_fds.operators.delta_plan",
                    "airflow_provider_fds.operators.delta_commit",
                    "airflow_provider_fds.operators.delta_stream_monitor",
                    "airflow_provider_fds.operators.delta_stream_action",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": ["airflow_provider_fds.sensors.delta_table_version"],
            }
        ],
        "triggers": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_provider_fds.triggers.delta_fleet",
                    "airflow_provider_fds.triggers.delta_interval",
                    "airflow_provider_fds.triggers.delta_stream_monitor",
                    "airflow_provider_fds.triggers.delta_table_change",
                    "airflow_provider_fds.triggers.delta_table_condition",
                    "airflow_provider_fds.triggers.delta_table_version",
                    "airflow_provider_fds.triggers.delta_watermark",
                ],
            }
        ],
        "hooks": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": ["airflow_provider_fds.hooks.delta_table"],
            }
        ],
        "connection-types": [
            {
                "connection-type": "fds_hive",
                "hook-class-name": "airflow_provider_fds.hooks.catalog_connections.HiveMetastoreCatalogHook",
                "hook-name": "Hive metastore (FDS)",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login", "password", "extra"],
                    "relabeling": {},
                    "placeholders": {"host": "metastore.example.com", "port": "9083"},
                },
            },
            {
                "connection-type": "fds_unity",
                "hook-class-name": "airflow_provider_fds.hooks.catalog_connections.UnityCatalogHook",
                "hook-name": "Unity Catalog (FDS)",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "port"],
                    "relabeling": {
                        "host": "URL",
                        "login": "Client id (OAuth; empty for a token)",
                        "password": "Token, or secret of the client",
                    },
                    "placeholders": {"host": "https://HOST", "extra": '{"token_url": "https://HOST/oidc/v1/token"}'},
                },
            },
        ],
        "task-decorators": [
            {
                "name": "delta_batch",
                "class-name": "airflow_provider_fds.decorators.delta_batch.delta_batch_task",
            }
        ],
        "extra-links": [
            "airflow_provider_fds.operators.links.DeltaStreamLink",
            "airflow_provider_fds.operators.links.SparkLink",
            "airflow_provider_fds.operators.links.SourceVersionLink",
            "airflow_provider_fds.operators.links.SinkVersionLink",
        ],
        "asset-uris": [
            {
                # the schemes of FDS's asset URIs; Airflow's own providers, if installed, take precedence
                "schemes": list(_ASSET_SCHEMES),
                "handler": None,
                "to_openlineage_converter": "airflow_provider_fds.hooks.lineage.convert_asset",
            }
        ],
        # Airflow 3.2 and newer
        "cli": ["airflow_provider_fds.cli.airflow_commands.airflow_commands"],
        "config": {"fds": {"description": "Settings of FDS, for all streams.", "options": _OPTIONS}},
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "staging": {
        "description": (
            "URI of the folder in which streams keep ledger and manifests. Airflow's workers and Spark must both "
            "reach it. Empty: a folder 'fds' below AIRFLOW_HOME, accepted only with an executor that runs on one "
            "machine. A stream's own staging takes precedence."
        ),
        "version_added": "0.1.0",
        "type": "string",
        "example": "s3://lake/_fds",
        "default": "",
    },
    "poll_interval": {
        "description": "Seconds between two polls of a table by a sensor or trigger.",
        "version_added": "0.1.0",
        "type": "float",
        "example": "15",
        "default": "60",
    },
    "manifest_retention_days": {
        "description": (
            "Days for which plans and manifests of committed batches are kept. The newest 100 batches and "
            "everything uncommitted are always kept."
        ),
        "version_added": "0.1.0",
        "type": "integer",
        "example": "30",
        "default": "14",
    },
    "deployment": {
        "description": (
            "Name of this Airflow installation. A stream belongs to one: a copy of the database in a test "
            "installation must not move the positions of production. Empty: the base URL of the API server."
        ),
        "version_added": "0.1.0",
        "type": "string",
        "example": "production",
        "default": "",
    },
    "on_schema_change": {
        "description": (
            "What streams do at a version that changes the schema, by kind of change (add, widen, rename, drop, "
            "type): follow, ask or fail. A stream's own on_schema_change takes precedence, kind by kind. Empty: "
            "follow add and widen, ask at the others."
        ),
        "version_added": "0.2.0",
        "type": "string",
        "example": "rename=follow,drop=fail",
        "default": "",
    },
    "cache_dir": {
        "description": (
            "Folder on each worker in which Delta's JARs and the driver's modules are kept, so that Spark starts "
            "without a repository. Empty: $FDS_CACHE_DIR, $XDG_CACHE_HOME/fds or ~/.cache/fds."
        ),
        "version_added": "0.1.0",
        "type": "string",
        "example": "/var/cache/fds",
        "default": "",
    },
    "catalog_url_template": {
        "description": (
            "URL of a table's version in your catalog, for links on the pages of tasks; {table} is the table's URI, "
            "{version} its version. Empty: no such links."
        ),
        "version_added": "0.2.0",
        "type": "string",
        "example": "https://catalog.example/table?location={table}&version={version}",
        "default": "",
    },
    "spark_history_url_template": {
        "description": (
            "URL of an application in Spark's history server, for links on the pages of tasks; {application} is the "
            "application's id. Empty: no such links."
        ),
        "version_added": "0.2.0",
        "type": "string",
        "example": "https://history.example/history/{application}",
        "default": "",
    },
    "ui_staging": {
        "description": (
            "Staging folders whose streams the page Delta streams shows, separated by commas. Empty: staging."
        ),
        "version_added": "0.2.0",
        "type": "string",
        "example": "s3://lake/_fds,s3://other/_fds",
        "default": "",
    },
    "staging_conn_id": {
        "description": (
            "Airflow connection with which the API server reads these folders, and writes users' decisions to "
            "them. Empty: the credentials of the API server's environment."
        ),
        "version_added": "0.2.0",
        "type": "string",
        "example": "aws_staging",
        "default": "",
    },
    "preload": {
        "description": (
            "Whether the scheduler imports at its start what tasks of FDS need, the client of Spark Connect included, "
            "for an executor that forks tasks from it (LocalExecutor). A task on Spark Connect then needs 1.5 s of CPU "
            "time less before its batch is in Spark. Costs the scheduler about 130 MB, which its tasks share."
        ),
        "version_added": "0.2.0",
        "type": "boolean",
        "example": "True",
        "default": "False",
    },
}
