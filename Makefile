# Everything a person or CI does here. `make help` lists it.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE_SOURCES := native/Cargo.toml native/Cargo.lock native/build.rs $(shell find native/src -name '*.rs' 2>/dev/null)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_CONSTRAINT := constraints.txt

.PHONY: help up demo spark-demo down install proto proto-go config-docs metrics-docs observe prometheus build compiled release-fixtures check format test test-native test-servers test-clients test-full kubernetes image image-wheels container-test bench bench-turns detection-report clean
.DEFAULT_GOAL := help

help: ## list what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | while IFS=$$'\t' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done

up: compiled ## start a mesh on this machine and show what it does; Ctrl-C stops it
	@$(BIN)/snavio up $(ARGS)

demo: compiled ## a scripted tour of a mesh of its own; exits 0 when all went well
	@$(BIN)/snavio demo $(ARGS)

spark-demo: compiled ## traffic with one abusive source, the Spark jobs, its ban, and the report
	@$(BIN)/snavio spark demo $(ARGS)

down: build ## stop the mesh that runs on .snavio
	@$(BIN)/snavio down $(ARGS)

install: $(VENV)/.installed ## make .venv and install what the project needs

$(VENV)/.installed: pyproject.toml constraints.txt
	@command -v cargo >/dev/null || { echo "Snavio needs a Rust toolchain (cargo 1.88 or newer): install one with rustup, then run make again."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "Snavio needs Python 3.11 or newer; set PYTHON=python3.11 or newer and run make again."; exit 1; }
	@echo "installing: Python packages of pyproject.toml, in the versions of constraints.txt, into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --require-virtualenv maturin
	@$(BIN)/python tools/requirements.py dev > $(VENV)/requirements.txt
	@$(BIN)/python -m pip install --quiet --require-virtualenv -r $(VENV)/requirements.txt
	@touch $@

proto: $(VENV)/.installed ## generate snavio/v1 from proto/
	@$(BIN)/python tools/generate_proto.py

# Only who changes a proto needs it: what it writes is committed. GOBIN is thrown away, so that nothing of yours is replaced.
proto-go: $(VENV)/.installed ## generate clients/go/snaviov1 from proto/; needs Go
	@command -v go >/dev/null || { echo "Needs Go: install it, then run make again."; exit 1; }
	@bin=$$(mktemp -d) && trap 'rm -rf "$$bin"' EXIT && \
	  GOBIN="$$bin" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12 && \
	  GOBIN="$$bin" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2 && \
	  rm -f clients/go/snaviov1/*.pb.go && \
	  PATH="$$bin:$$PATH" $(BIN)/python -m grpc_tools.protoc -Iproto --go_out=clients/go --go_opt=module=snavio.local/go \
	    --go-grpc_out=clients/go --go-grpc_opt=module=snavio.local/go \
	    $(foreach name,batch command enrolment mailbox shield signer,proto/snavio/v1/$(name).proto)

config-docs: build ## write deploy/snavio.toml, docs/configuration.md and docs/hookaidofile.md from their tables
	@$(BIN)/python tools/generate_configuration.py
	@$(BIN)/python tools/generate_hookaidofile.py

metrics-docs: build ## write docs/metrics.md and Grafana's dashboards from their tables
	@$(BIN)/python tools/generate_metrics.py
	@$(BIN)/python tools/generate_dashboards.py

observe: compiled prometheus ## start Prometheus beside the mesh that runs here, with the alarms of deploy/observability
	@$(BIN)/python tools/observe.py $(ARGS)

# Unpacked and not installed: the package would start a daemon.
prometheus: $(VENV)/.installed ## unpack Prometheus and promtool from the distribution's package
	@command -v promtool >/dev/null || test -x $(VENV)/prometheus/usr/bin/promtool || { \
	  command -v apt-get >/dev/null && command -v dpkg >/dev/null || { echo "Prometheus is not there: install it, then run make again."; exit 1; }; \
	  echo "unpacking: prometheus, into $(VENV)/prometheus"; \
	  folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	  ( cd "$$folder" && { apt-get download -qq prometheus >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get download -qq prometheus >/dev/null 2>&1; }; } ) && \
	  dpkg -x "$$folder"/prometheus_*.deb $(VENV)/prometheus || { echo "Prometheus could not be unpacked: its rules are not checked."; exit 1; }; }

build: $(VENV)/.built ## build the Rust extension (release) and install the package in place

$(VENV)/.built: $(VENV)/.installed $(NATIVE_SOURCES)
	@command -v cargo >/dev/null || { echo "Snavio needs a Rust toolchain (cargo 1.88 or newer): install one with rustup, then run make again."; exit 1; }
	@echo "building: the native extension (release)"
	@VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/maturin develop --release
	@touch $@

# Each service is a process of its own, and compiles what it imports at every start where it may not write it down.
compiled: build
	@$(BIN)/python -m compileall -q snavio services

release-fixtures: compiled ## keep the wire and a state folder of this version, for later versions to be held to
	$(BIN)/python tools/check_wire.py --write
	$(BIN)/python tools/make_state_fixture.py

check: build ## lint, types, formatting, generated code, stub, wire
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd native && cargo fmt --check
	cd native && cargo clippy --quiet --all-targets --features python -- -D warnings
	cd native/fuzz && cargo fmt --check && cargo check --quiet --no-default-features
	$(BIN)/python tools/check_generated.py
	$(BIN)/python tools/generate_configuration.py --check
	$(BIN)/python tools/generate_hookaidofile.py --check
	$(BIN)/python tools/generate_metrics.py --check
	$(BIN)/python tools/generate_dashboards.py --check
	$(BIN)/python tools/generate_schema.py --check
	$(BIN)/python tools/generate_kubernetes.py --check
	$(BIN)/python tools/check_proto_comments.py
	$(BIN)/python tools/check_stub.py
	$(BIN)/python tools/check_wire.py

format: $(VENV)/.installed ## format Python and Rust
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format --quiet .
	cd native && cargo fmt

test-native: ## the Rust tests; they need no Python
	cd native && cargo test --quiet

# The tests run every adapter against the real thing. Root installs what is missing; others are told what to install.
test-servers:
	@command -v redis-server >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing: redis-server, which the tests run adapters against"; \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server >/dev/null; \
	  else echo "The tests need redis-server: install it with your system's packages, then run make again."; exit 1; fi; }
	@command -v java >/dev/null || [ -x "$$JAVA_HOME/bin/java" ] || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing: openjdk-17-jre-headless, which Spark runs on"; \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null; \
	  else echo "The tests need Java 17: install it, or set JAVA_HOME, then run make again."; exit 1; fi; }
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing: libfaketime, which moves the clock of a process under test"; \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends libfaketime >/dev/null || true; fi; }
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || echo "libfaketime is not there: the test of a clock that jumps is skipped"
	@$(MAKE) --no-print-directory prometheus || echo "promtool is not there: the test of the alarms is skipped"

test: compiled test-native test-servers ## every test, with reduced counts where a test is long
	$(BIN)/python tools/run_tests.py

test-clients: compiled ## the clients in Python, Go and TypeScript against a real mesh; what has no toolchain here is skipped, by name
	@command -v go >/dev/null || echo "go is not there: the Go client is skipped"
	@command -v npm >/dev/null || echo "node and npm are not there: the TypeScript client is skipped"
	$(BIN)/python -m pytest -q -rs tests/conformance

test-full: compiled test-native test-servers ## every test with its full counts
	SNAVIO_FULL=1 $(BIN)/python tools/run_tests.py --timeout 1800

bench: compiled ## the benchmarks; writes docs/performance.md
	$(BIN)/python -m pytest bench -q -s --timeout 1800

detection-report: compiled ## how well abuse is found, with seeds of the last commit that changed a rule; writes docs/fairness.md
	$(BIN)/python -m bench.detection_quality --write $(ARGS)

# What goes into the image, as wheels: the image is built without compiler and without package index. async-timeout is
# what the Redis client needs on Python 3.11.0 to 3.11.2, which distributions have.
ENGINE ?= $(shell command -v podman docker 2>/dev/null | head -1)
IMAGE ?= snavio
EXTRAS ?= mesh,redis,aws
image-wheels: build
	@rm -rf dist/wheels && mkdir -p dist/wheels
	@VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/maturin build --quiet --release --out dist/wheels
	@$(BIN)/python -m pip download --quiet --only-binary :all: --dest dist/wheels pip async-timeout "$$(echo dist/wheels/snavio-*.whl)[mesh,otlp,redis,aws]"

kubernetes: build ## write deploy/kubernetes/base from the services and the authorisation table
	@$(BIN)/python tools/generate_kubernetes.py

image: image-wheels ## the container image `snavio`; ENGINE=podman|docker, BASE_IMAGE=<image with python3>, EXTRAS=service without pyarrow
	@test -n "$(ENGINE)" || { echo "Needs podman or docker: install one, then run make again."; exit 1; }
	$(ENGINE) build $(if $(BASE_IMAGE),--build-arg BASE=$(BASE_IMAGE)) --build-arg EXTRAS=$(EXTRAS) -t $(IMAGE) -f deploy/Containerfile .

container-test: image-wheels ## the journey in real containers, which are killed and restarted; installs podman where root may
	@tools/container_engine.sh
	SNAVIO_CONTAINERS=1 $(BIN)/python -m pytest -q -rs tests/containers --timeout 900

BASE ?= HEAD~1
PAIRS ?= 20
bench-turns: compiled ## this tree against BASE=<commit>, by turns, PAIRS=20; JSON=<file> keeps all figures
	$(BIN)/python -m bench.turns $(BASE) --pairs $(PAIRS) $(if $(JSON),--json $(JSON))

clean: ## remove what was built
	rm -rf clients/ts/node_modules clients/ts/dist
	rm -rf $(VENV) native/target native/fuzz/target .mypy_cache .ruff_cache .hypothesis .benchmarks dist
	find . -name '*.so' -path './snavio/*' -delete
