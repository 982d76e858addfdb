# Every target bootstraps what it needs into .venv first; with nothing changed that takes no time.
.PHONY: help numbers demo demo-fleet demo-picture demo-walk test test-all test-quick check release-check ui-test package docs bench bench-against fuzz fuzz-input merges models chaos adversary compat s3 catalog-test requirements usual-airflow services lowest pythons upgrade-test matrix docker-test k8s-test clean
.DEFAULT_GOAL := help

UV_COMPILE = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header $(if $(UPGRADE),--upgrade)

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' Makefile

demo:  ## Load a growing table with a real Airflow and Spark, and prove it (SERVE=1 keeps the UI up, BACKEND=submit: without a Spark Connect server, CATALOG=hive: by its name in a Hive metastore)
	@scripts/bootstrap.sh $(if $(CATALOG),dev,demo)
	@.venv/bin/python scripts/demo.py

demo-fleet:  ## Load 50 growing tables from one file, each group in one Spark application, and prove each table
	@scripts/bootstrap.sh demo
	@.venv/bin/python scripts/demo_fleet.py

demo-picture:  ## Run the demo, and draw its output as docs/demo.svg
	@scripts/bootstrap.sh demo
	@.venv/bin/python scripts/terminal_picture.py docs/demo.svg "make demo" .venv/bin/python scripts/demo.py

demo-walk:  ## Play the walk of docs/demo.md through the demo in a headless Chromium, and take its pictures (PICTURES=docs/images)
	@scripts/bootstrap.sh ui
	@.venv/bin/python scripts/demo_walk.py $(or $(PICTURES),docs/images)

test:  ## Run the checks and one test of each kind (SUITES="unit airflow": all tests of these suites; ONLY=tests/unit/ledger K=fold: these tests)
	@scripts/bootstrap.sh dev
	@.venv/bin/python scripts/run_tests.py $(SUITES) $(if $(ONLY),--only $(ONLY)) $(if $(K),-k "$(K)")

test-all:  ## Run all tests but the nightly ones, the docs site, the package and usual installations of Airflow (AGAIN=1: also what make test has passed on these files; SUITES="stack docs": of these suites)
	@scripts/bootstrap.sh dev
	@.venv/bin/python scripts/run_tests.py --all $(SUITES)

test-nightly:  ## Run the tests of tests/nightly.txt: what make test-all shows, at more points and with more parameters
	@scripts/bootstrap.sh dev
	@.venv/bin/python scripts/run_tests.py --nightly
	@.venv/bin/python scripts/long_runs.py record test-nightly

test-quick:  ## Run the unit tests and the checks
	@scripts/bootstrap.sh dev
	@.venv/bin/python scripts/run_tests.py --quick

ui-test:  ## Test the page "Delta streams" in a headless Chromium (PICTURES=docs/images also writes the pictures of the docs)
	@scripts/bootstrap.sh ui
	FDS_UI_TEST=1 FDS_UI_PICTURES=$(PICTURES) .venv/bin/python -m pytest tests/ui
	@.venv/bin/python scripts/long_runs.py record ui-test

check:  ## Lint, formatting, types, imports between the rooms, generated parts of pages
	@scripts/bootstrap.sh dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/python scripts/package_picture.py --check
	.venv/bin/python scripts/reason_table.py --check
	.venv/bin/python scripts/code_tables.py --check
	scripts/workflows.sh
	@.venv/bin/python scripts/long_runs.py check

numbers:  ## Print how large the project is: code, files, folders, documentation, time of tests
	@scripts/bootstrap.sh dev
	@.venv/bin/python scripts/project_size.py

release-check:  ## Fail if a run that no suite makes was green for the last time more than 100 commits ago (TAG=v1.0.0: or if the tag makes no release; writes its notes)
	@scripts/bootstrap.sh dev
	$(if $(TAG),@.venv/bin/python scripts/release_notes.py $(TAG))
	@.venv/bin/python scripts/long_runs.py check --strict

package:  ## Build wheel and sdist into dist/, and check what they hold
	@scripts/bootstrap.sh dev
	rm -rf dist
	.venv/bin/python -m hatchling build
	.venv/bin/twine check --strict dist/*
	.venv/bin/check-wheel-contents dist/*.whl

sbom:  ## Write a bill of materials (CycloneDX) of an installation with all that is pinned for the image to build/sbom.json
	@scripts/bootstrap.sh dev
	@mkdir -p build
	.venv/bin/python -W ignore -m cyclonedx_py requirements requirements/image.txt --pyproject pyproject.toml --output-reproducible -o build/sbom.json

docs:  ## Build the docs site into build/site; broken links and anchors fail
	@scripts/bootstrap.sh dev
	@scripts/docs_site.sh

bench:  ## Measure, and write docs/benchmarks.md (BENCH="fleet warm" measures these; FDS_BENCH_TABLES=40: a smaller fleet)
	@scripts/bootstrap.sh dev
	.venv/bin/python -m tests.bench $(BENCH)

bench-against:  ## Measure another commit and this tree in turn (COMMIT=main BENCH="planning snapshot"); a number worse by 5 % fails
	@scripts/bootstrap.sh dev
	.venv/bin/python -m tests.bench.compare $(COMMIT) $(BENCH)

fuzz:  ## Compare with Structured Streaming on random tables (TABLES=30 OPTIONS=17 SEED=1 BY_TIME=0.4)
	@scripts/bootstrap.sh dev
	FDS_FUZZ_TABLES=$(or $(TABLES),30) FDS_FUZZ_OPTIONS=$(or $(OPTIONS),17) FDS_FUZZ_SEED=$(or $(SEED),1) \
	    FDS_FUZZ_BY_TIME=$(or $(BY_TIME),0.4) \
	    .venv/bin/python -m pytest -s -p no:randomly tests/interop/differential/test_differential.py

merges:  ## Compare merge sinks with their sources on random histories (HISTORIES=200 SEED=1)
	@scripts/bootstrap.sh dev
	FDS_FUZZ_HISTORIES=$(or $(HISTORIES),200) FDS_FUZZ_SEED=$(or $(SEED),1) \
	    .venv/bin/python -m pytest -s -p no:randomly tests/interop/differential/test_merges.py

fuzz-input:  ## Damage everything that is read, and write the table of docs/testing.md (MUTATIONS=100000 SEED=1)
	@scripts/bootstrap.sh dev
	.venv/bin/python -m tests.fuzz --mutations $(or $(MUTATIONS),100000) --seed $(or $(SEED),1) --page docs/testing.md

models:  ## Play the models of the protocol on new random histories (EXAMPLES=3000)
	@scripts/bootstrap.sh dev
	FDS_MODEL_EXAMPLES=$(or $(EXAMPLES),3000) .venv/bin/python -m pytest -p no:randomly --timeout 0 -k whatever tests/unit/ledger

chaos:  ## Kill and stall runs at every fault point, and write the table of docs/failures.md (SEED=1 PAIRS=60; RESUME=1: what has not passed in the last 100 commits)
	@scripts/bootstrap.sh dev
	FDS_CHAOS=long FDS_CHAOS_SEED=$(SEED) FDS_CHAOS_PAIRS=$(PAIRS) FDS_CHAOS_RESUME=$(RESUME) \
	    FDS_CHAOS_RESULTS=tests/chaos/results.json FDS_CHAOS_PAGE=docs/failures.md \
	    .venv/bin/python -m pytest -p no:randomly tests/chaos tests/stack/test_chaos.py
	@.venv/bin/python scripts/long_runs.py record chaos

adversary:  ## Play all kinds of faults from outside for a time, and write the table of docs/failures.md (MINUTES=60 SEED=1)
	@scripts/bootstrap.sh dev
	.venv/bin/python -m tests.adversary --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) --page docs/failures.md
	@.venv/bin/python scripts/long_runs.py record adversary

compat:  ## Run the driver's tests on older Sparks (SPARK=3.5 runs that one)
	@scripts/bootstrap.sh dev
	@.venv/bin/python scripts/compat.py $(SPARK)
	@$(if $(SPARK),,.venv/bin/python scripts/long_runs.py record compat)

s3:  ## Test Spark on S3 (fetches its S3 file system, some 700 MB, once)
	@scripts/bootstrap.sh dev
	FDS_S3=1 .venv/bin/python -m pytest tests/interop/s3
	FDS_S3=1 .venv/bin/python -m pytest tests/airflow/test_ingest_on_s3.py tests/airflow/test_vended_keys.py
	@.venv/bin/python scripts/long_runs.py record s3

catalog-test:  ## Test tables by name on a real Unity Catalog server (cargo builds it, once per machine, in some five minutes)
	@scripts/bootstrap.sh dev
	@scripts/unity_server.sh
	.venv/bin/python -m pytest --durations=12 --durations-min=5 tests/interop/unity
	@.venv/bin/python scripts/long_runs.py record catalog-test

requirements:  ## Compile the pinned requirements again (UPGRADE=1 takes newer versions)
	@scripts/bootstrap.sh dev
	$(UV_COMPILE) requirements/uv.in -o requirements/uv.txt
	$(UV_COMPILE) requirements/build.in -o requirements/build.txt
	$(UV_COMPILE) requirements/docs.in -o requirements/docs.txt
	$(UV_COMPILE) --no-deps requirements/openlineage.in -o requirements/openlineage.txt
	$(UV_COMPILE) --no-deps requirements/services.in -o requirements/services.txt
	$(UV_COMPILE) pyproject.toml --extra local --group dev -o requirements/dev.txt
	$(UV_COMPILE) pyproject.toml --extra local --group demo --constraints requirements/dev.txt -o requirements/demo.txt
	$(UV_COMPILE) pyproject.toml --extra local --group image --constraints requirements/dev.txt -o requirements/image.txt
	$(UV_COMPILE) --group spark-3-5 -o requirements/spark-3-5.txt
	$(UV_COMPILE) --group spark-4-0 -o requirements/spark-4-0.txt
	@UPGRADE=$(UPGRADE) scripts/airflow_pins.sh

usual-airflow:  ## See what FDS adds to usual installations of Airflow 3.1, 3.2, 3.3, on each Python (UPGRADE=1 compiles their pins again)
	@scripts/bootstrap.sh dev
	@UPGRADE=$(UPGRADE) scripts/usual_airflow.sh

services:  ## Run the example of each other service that starts Spark: Livy, EMR, Databricks, Dataproc, Kubernetes
	@scripts/bootstrap.sh dev
	@scripts/services.sh
	@.venv/bin/python scripts/long_runs.py record services

lowest:  ## Run the unit tests and one ingest with the oldest versions that pyproject.toml allows
	@scripts/bootstrap.sh dev
	@scripts/lowest.sh
	@.venv/bin/python scripts/long_runs.py record lowest

pythons:  ## Run the unit tests and one ingest on Python 3.12 and 3.13 (PYTHONS=3.13: on that one)
	@scripts/bootstrap.sh dev
	@.venv/bin/python scripts/pythons.py $(PYTHONS)
	@$(if $(PYTHONS),,.venv/bin/python scripts/long_runs.py record pythons)

# the commit of the oldest golden folder whose names and settings are those of now
upgrade-test: FROM ?= $(shell git log --diff-filter=A --format=%H -- tests/golden/folders/0.2.0-3/expected.json | tail -n 1)
upgrade-test:  ## Run Airflow with processes of an older FDS and of this one (FROM=commit)
	@scripts/bootstrap.sh dev
	@rm -rf .compat/older && mkdir -p .compat/older && git archive $(FROM) airflow_provider_fds | tar -x -C .compat/older
	FDS_UPGRADE_FROM=$(CURDIR)/.compat/older .venv/bin/python -m pytest tests/stack/test_rolling_upgrade.py
	@.venv/bin/python scripts/long_runs.py record upgrade-test

matrix:  ## Run every Airflow from 3.1 and every Spark from 3.5; writes docs/compatibility.md (ROWS="airflow-3.1 spark-4.0"; RESUME=1: what has not passed in the last 100 commits)
	@scripts/bootstrap.sh dev
	@.venv/bin/python scripts/matrix.py $(if $(RESUME),--resume) $(if $(CHECK),--check) $(ROWS)
	@$(if $(ROWS)$(CHECK),,.venv/bin/python scripts/long_runs.py record matrix)

docker-test:  ## Build the image of docker/ and run the services of its compose file, without a Docker engine (as root; BASE=image)
	@scripts/bootstrap.sh dev
	@scripts/docker_image.sh localhost/airflow-provider-fds
	@FDS_DOCKER_IMAGE=localhost/airflow-provider-fds unshare --net --mount --pid --fork --kill-child --mount-proc \
	    .venv/bin/python -m pytest -p no:randomly tests/docker
	@.venv/bin/python scripts/long_runs.py record docker-test

k8s-test:  ## Test drivers in Kubernetes: its real API server, which Go builds once per machine in some ten minutes, and a stand-in for its nodes
	@scripts/bootstrap.sh dev
	@scripts/kube_apiserver.sh
	FDS_K8S=1 .venv/bin/python -m pytest --durations=12 --durations-min=5 tests/airflow/test_kubernetes.py
	@.venv/bin/python scripts/long_runs.py record k8s-test

clean:  ## Remove the virtual environment, the demo's files and all caches
	rm -rf .venv .venv-docs build .demo .demo-fleet .compat .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
