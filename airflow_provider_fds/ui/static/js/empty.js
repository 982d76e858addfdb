// The page before there is a stream.

import { h } from "./dom.js";

const EXAMPLE = `from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

DeltaIngestOperator(
    task_id="ingest",
    stream=DeltaStream("orders", table="s3://lake/orders"),
    sink=DeltaAppendSink("s3://lake/bronze/orders"),
    conn_id="spark_default",
)`;

/** Return what to do to see a stream here. */
export function emptyInstallation(staging) {
  const isConfigured = staging.length > 0;
  return h(
    "section",
    { class: "card empty" },
    h("h2", null, "No streams yet"),
    h("p", null, isConfigured ? "FDS has found no stream status in its staging folder. A stream appears here after its first run." : "No staging folder is configured, so FDS cannot find any streams."),
    h(
      "ol",
      null,
      isConfigured
        ? h("li", null, "The staging folder is ", staging.map((uri, index) => [index ? ", " : "", h("code", null, uri)]), ".")
        : h("li", null, "Set the staging folder in Airflow's configuration, for the API server too: ", h("code", null, "[fds] staging = s3://lake/_fds"), ", or ", h("code", null, "AIRFLOW__FDS__STAGING"), "."),
      h("li", null, "Add a task to a DAG:", h("pre", null, h("code", null, EXAMPLE))),
      h("li", null, "Unpause the DAG and let it run once. The stream appears here within seconds after the run."),
    ),
    h("p", { class: "muted" }, "Already have streams? Their status is written by their next run, or by the monitor: ", h("code", null, "fds monitor --staging URI"), " or the example DAG ", h("code", null, "fds_monitor"), "."),
  );
}
