# Portolan's whole workflow: install, run, check, test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CLIENTS := clients/python

# Container images often keep Python from caching bytecode: then each process that a test starts compiles
# the whole product again, for a second.
export PYTHONDONTWRITEBYTECODE =

.PHONY: install run test test-large check audit js docs reference chart chart-tools chart-reference format lock sbom \
  competitors peers screenshots clean

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Portolan needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m mediator.embedded.jars
	@touch $@

run: install
	$(BIN)/portolan demo

check: install docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=$(CLIENTS) $(BIN)/lint-imports
	$(BIN)/python -m audit.references
	$(BIN)/python -m audit.words
	$(BIN)/python -m audit.vulnerabilities

# Known vulnerabilities of installed versions; reports if no database could be reached. STRICT=1 includes
# the chart's tools, and fails if a look-up fails: for releases.
audit: install
	$(BIN)/python -m audit.vulnerabilities $(if $(STRICT),--strict)

# Rebuilds the shipped JavaScript client from sketch/js/src, and fails if the committed files differ; checks
# the types of the npm client, with those of a database, with TypeScript's compiler.
TYPES := tests/unit/clients
js: install
	cd sketch/js && npm ci --silent --no-audit --no-fund && node build.mjs --check
	cd $(TYPES)/typescript && npm ci --silent --no-audit --no-fund
	$(BIN)/pytest -m typescript $(TYPES)/test_typescript.py

# The documentation as a site, in site/; a broken link fails the build.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Two more processes than cores, as tests often wait, but at most four. Module by module in the order
# of the folders, which ends with the short ones; `tests/conftest.py` puts those that mostly wait
# in between.
PROCESSES = $(shell $(BIN)/python -c 'import os; print(min(4, (os.cpu_count() or 1) + 2))')
SPREAD = -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

# A CDS archive of the classes that Spark loads at start, which halves the processor time of a start.
# Without Java there is none.
CLASSES := $(VENV)/spark-classes.jsa

$(CLASSES): $(STAMP) tests/java.py
	-$(BIN)/python -m tests.java

test: install $(CLASSES)
	$(BIN)/pytest $(SPREAD)

test-large: install $(CLASSES)
	$(BIN)/pytest $(SPREAD) -m "not chart and not typescript" -o faulthandler_timeout=3960

# The chart, with the real Helm; needs Go, which downloads the version that tools/go.mod requires.
TOOLS := $(CURDIR)/.tools
CHART := helm/portolan

$(TOOLS)/.go: helm/tools/go.mod helm/tools/go.sum
	cd helm/tools && GOBIN=$(TOOLS) GOTOOLCHAIN=auto CGO_ENABLED=0 go install -trimpath tool
	@touch $@

# The CRDs, from the Go modules that define them.
GATEWAY := sigs.k8s.io/gateway-api
OPERATOR := github.com/prometheus-operator/prometheus-operator
DEFINED = $$(go list -m -f '{{.Dir}}/$(2)' $(1))

$(TOOLS)/.schemas: helm/tools/schemas/go.mod helm/tools/schemas/go.sum
	rm -rf $(TOOLS)/schemas && mkdir -p $(TOOLS)/schemas
	cd helm/tools/schemas && go mod download $(GATEWAY) $(OPERATOR)
	cd helm/tools/schemas && install -m 644 -t $(TOOLS)/schemas \
	  $(call DEFINED,$(GATEWAY),config/crd/standard/*_httproutes.yaml) \
	  $(call DEFINED,$(GATEWAY),config/crd/standard/*_backendtlspolicies.yaml) \
	  $(call DEFINED,$(OPERATOR),example/prometheus-operator-crd/*_servicemonitors.yaml) \
	  $(call DEFINED,$(OPERATOR),example/prometheus-operator-crd/*_prometheusrules.yaml)
	@touch $@

$(TOOLS)/.hadolint: helm/tools/hadolint.lock
	$(PYTHON) -m venv $(TOOLS)/venv
	$(TOOLS)/venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

chart-tools: $(TOOLS)/.go $(TOOLS)/.schemas $(TOOLS)/.hadolint

chart: install chart-tools
	$(TOOLS)/venv/bin/hadolint --failure-threshold warning Dockerfile
	$(BIN)/python -m helm.reference --check
	for values in $(CHART)/ci/*.yaml; do $(TOOLS)/helm lint --strict --quiet --kube-version 1.34 -f $$values $(CHART) || exit 1; done
	$(TOOLS)/helm-unittest --strict $(CHART)
	$(BIN)/pytest -m chart tests/chart

# Files generated from the chart's values.yaml.
chart-reference: install
	$(BIN)/python -m helm.reference

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Resolve pyproject.toml again; needs uv (any installation). The images install the same versions,
# without unneeded packages.
UV ?= uv
RESOLVE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-annotate --no-header

# All extras but gpu: half a gigabyte of CUDA, for one kind of card, which no test here could use.
EXTRAS := plots docs spark linkage matching standing embedded dev
FOR_WORKERS := --extra spark --extra linkage --extra matching

lock:
	$(RESOLVE) $(addprefix --extra ,$(EXTRAS)) pyproject.toml -o requirements.lock
	$(RESOLVE) -c requirements.lock pyproject.toml -o requirements-api.lock
	$(RESOLVE) -c requirements.lock $(FOR_WORKERS) pyproject.toml -o requirements-worker.lock
	$(RESOLVE) -c requirements.lock $(FOR_WORKERS) --extra gpu pyproject.toml -o requirements-gpu.lock
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  | $(RESOLVE) -c requirements.lock - -o requirements-build.lock

# The components of each image, for vulnerability scanners.
sbom: install
	mkdir -p dist
	$(BIN)/cyclonedx-py requirements requirements-api.lock --pyproject pyproject.toml --output-reproducible -o dist/portolan-api.cdx.json
	$(BIN)/cyclonedx-py requirements requirements-worker.lock --pyproject pyproject.toml --output-reproducible -o dist/portolan-worker.cdx.json

# Generated pages: docs/cli.md, docs/benchmarks.md.
reference: install
	$(BIN)/python -m docs.reference

# Screenshots of the admin pages for docs/pages.md; needs Chromium and Spark.
screenshots: install
	$(BIN)/python -m docs.screenshots

# Competitors of private linkage, whose packages conflict with ours, and data of benchmarks.
competitors: .venv-competitors/.installed

.venv-competitors/.installed: benchmarks/competitors.lock
	$(PYTHON) -m venv .venv-competitors
	.venv-competitors/bin/pip install --quiet --disable-pip-version-check --require-hashes -r benchmarks/competitors.lock
	@touch $@

# What `portolan bench peers` compares with, each in its own environment; webdis is a Debian package.
PEERS := benchmarks/harness/peers/environments

peers: .venv-peers/.installed $(PEERS)/postgraphile/node_modules/.installed \
  $(PEERS)/platformatic/node_modules/.installed

.venv-peers/.installed: $(PEERS)/eve/requirements.lock
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(PEERS)/%/node_modules/.installed: $(PEERS)/%/package-lock.json
	cd $(PEERS)/$* && npm ci --silent --no-audit --no-fund --ignore-scripts --engine-strict
	@touch $@

clean:
	rm -rf site .tools .venv-competitors .venv-peers $(PEERS)/*/node_modules $(VENV) .portolan .mypy_cache .ruff_cache .pytest_cache
