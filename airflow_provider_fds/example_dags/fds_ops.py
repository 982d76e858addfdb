"""Change any stream from the UI: "Trigger DAG" asks for the stream, the action and the reason.

Anyone who may trigger this DAG may change streams; restrict it with Airflow's permissions.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_fds import DeltaStreamActionOperator

# with native objects, the form's values keep their types
with DAG("fds_ops", schedule=None, render_template_as_native_obj=True, params=DeltaStreamActionOperator.form()):
    DeltaStreamActionOperator.from_form(task_id="act", retries=2)
