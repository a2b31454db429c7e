# `make` shows the targets. Everything runs in .venv, made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FILE ?= examples/bert-finetune.tonnage.yaml

# uv installs everything for development in half a minute where pip takes four. It reads no settings of pip: it is told the
# index and the folder of packages that pip would look in.
UV = env \
	$${PIP_FIND_LINKS:+UV_FIND_LINKS="$$PIP_FIND_LINKS"} $${PIP_INDEX_URL:+UV_DEFAULT_INDEX="$$PIP_INDEX_URL"} \
	$(BIN)/uv --quiet

# The many processes that tests start load compiled modules, also where the shell that runs make says not to write them.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help venv plan test test-fast test-facts test-slow test-gpu test-browser gallery lint wheel format docs docs-site bench accuracy house clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/bin/tonnage: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(UV) pip install --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'
	# xds-protos brings old copies of OpenTelemetry's own modules: whichever is written last stays.
	$(UV) pip install --python $(BIN)/python --constraint constraints.txt --no-deps --reinstall-package opentelemetry-proto opentelemetry-proto
	@touch $(STAMP)

venv: $(VENV)/bin/tonnage  ## create .venv with tonnage in it

plan: $(VENV)/bin/tonnage  ## rank every way to buy the work in FILE
	@$(BIN)/tonnage plan $(FILE)

test: $(STAMP)  ## run the tests
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow and not facts and not live and not gpu and not browser"

test-fast: $(STAMP)  ## the inner loop, under a minute: no torch, no process, no browser, no hundreds of plans
	$(BIN)/python -m pytest -n 2 --dist worksteal --fast -m "not slow and not facts and not live and not gpu and not browser"

test-facts: $(STAMP)  ## tests over the whole fact tables of the folder TONNAGE_FACTS (minutes)
	@test -d "$$TONNAGE_FACTS" || { echo "name the folder of fact tables: TONNAGE_FACTS=FOLDER make test-facts"; exit 2; }
	$(BIN)/python -m pytest -n auto --dist worksteal -m "facts and not slow"

test-slow: $(STAMP)  ## tests that take minutes, many more generated workloads, Ray
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,ray]'
	TONNAGE_EXAMPLES=400 $(BIN)/python -m pytest -n auto --hypothesis-profile random tests/planning/test_properties.py tests/planning/test_flips.py \
		tests/spot_instances/test_engine.py tests/spot_instances/test_optimum.py tests/workload/test_huggingface.py
	$(BIN)/python -m pytest --hypothesis-profile random -m slow

test-gpu: $(STAMP)  ## tests on an NVIDIA GPU (minutes; skipped where PyTorch sees none)
	$(BIN)/python -m pytest -n 4 --dist worksteal -m gpu -rs tests/gpu

test-browser: $(STAMP)  ## the reports in headless Chromium: layout, labels, accessibility
	$(BIN)/python -m pytest -m browser tests/browser

gallery: $(STAMP)  ## write docs/gallery: the example reports, and pictures of them
	$(BIN)/python docs/gallery.py

lint: $(STAMP)  ## style, imports, types, dead code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python benchmarks/dead_code.py

wheel: $(STAMP)  ## the wheel alone, without extras, must answer
	$(UV) venv --clear --python $(BIN)/python build/wheel
	$(UV) pip install --python build/wheel/bin/python --constraint constraints.txt .
	build/wheel/bin/tonnage --help > /dev/null
	build/wheel/bin/tonnage plan examples/bert-finetune.tonnage.yaml -o json > /dev/null

format: $(STAMP)  ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## regenerate the generated pages of docs/
	$(BIN)/python -m tonnage.cli.reference > docs/cli.md
	$(BIN)/python -m tonnage.workload.reference docs/workload-file.md
	$(BIN)/python -m tonnage.gateway.file.reference docs/gateway-file.md
	$(BIN)/python -m tonnage.monitoring.alerts.reference docs/watch-file.md
	$(BIN)/python -m tonnage.metric_names.reference docs/metrics.md
	$(BIN)/python -m tonnage.reports.reasons.reference > docs/reasons.md
	$(BIN)/python docs/refresh.py

docs-site: $(STAMP)  ## build the pages of docs/ as a site in site/, without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "site/index.html; for its search: $(BIN)/python -m http.server --directory site"

bench: $(STAMP)  ## print the speed figures
	$(BIN)/python benchmarks/plan_speed.py
	$(BIN)/python benchmarks/portfolio_speed.py
	$(BIN)/python benchmarks/service_economics.py
	$(BIN)/python benchmarks/run_overhead.py
	$(BIN)/python benchmarks/show_speed.py

accuracy: $(STAMP)  ## write docs/accuracy.md from the fact tables in TONNAGE_FACTS (minutes)
	$(BIN)/python benchmarks/accuracy.py

house: $(STAMP)  ## print figures of how the code is built: lines, import chains, duplicates
	$(BIN)/python benchmarks/house.py

clean:  ## remove what was built
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
