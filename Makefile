# The same commands for people and for CI. Each installs what it lacks.

PORT     ?= 8080
NODES    ?= 3
DISPATCH ?= proxy
SITE     ?= examples/site

FUZZ_SECONDS ?= 600

# Chosen from the whole workspace, so that libraries are built once, with the
# features that all later steps want.
XTASK = cargo build --quiet --workspace --bin xtask && $(TARGET)/debug/xtask

# Where rustup puts cargo, also for a shell that has not read its profile yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help up test check lint static tools fmt bench fuzz conformance

help: ## This text
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

up: ## Build, then run a cluster on this machine: PORT=8080 NODES=3 DISPATCH=proxy SITE=DIR
	@xtask/need.sh cc cargo $(if $(filter direct,$(DISPATCH)),ip:iproute2 tc:iproute2 nft:nftables)
	@xtask/build.sh skep
	@$(TARGET)/release/skep up $(SITE) --nodes $(NODES) --dispatch $(DISPATCH) --node-header --listen 127.0.0.1:$(PORT)

# What tests run beside Skep, as COMMAND:PACKAGE.
TOOLS := $(shell sed -n 's/^\([a-z][a-z0-9._-]*\)  *\([a-z].*\)$$/\1:\2/p' tests/tools.txt)

# Also tests that passed before, and of whose inputs none has changed: ALL=1
ALL ?=

# Inputs of each fuzz target in `make test`.
FUZZ_RUNS := 4000000

# Of no program, but files that tests need, as FILE:PACKAGE.
FILES := /usr/share/tomcat10-admin/manager/WEB-INF/web.xml:tomcat10-admin

test: ## Every check that a change must pass
	@xtask/need.sh cc cargo
	@$(MAKE) --no-print-directory --jobs=2 static tools
	packaging/check.sh
	$(XTASK) bpf --check
	cargo build --workspace --all-targets
	$(TARGET)/debug/skep-fuzz all --runs $(FUZZ_RUNS)
	$(TARGET)/debug/skep-differential --seconds 12
	$(TARGET)/debug/xtask test $(if $(ALL),--all)

check: ## The checks that need neither root nor long: while working
	@xtask/need.sh cc cargo
	cargo fmt --all --check
	$(XTASK) tidy
	cargo test --workspace --lib --bins

lint: static ## The checks that run no test: format, Clippy, tidy, dependencies, site, unit
	packaging/check.sh
	cargo build --workspace --all-targets

static:
	@xtask/need.sh cc cargo
	cargo fmt --all --check
	$(XTASK) tidy
	$(XTASK) deny
	examples/sidecars.sh --check

# Runs beside `static`, since it mostly waits for downloads.
tools:
	@xtask/need.sh $(TOOLS) $(FILES) clang llvm-strip:llvm

# Clippy is rustc with more lints: in its place, it compiles the workspace and lints it in one pass.
# The flags are handed over as `cargo clippy` does it.
test check lint conformance: export RUSTC_WORKSPACE_WRAPPER := clippy-driver
test check lint conformance: export CLIPPY_ARGS := --deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__

bench: ## Measure Skep beside its peers, as root: BENCH="static --quick"
	@xtask/need.sh cc cargo ip:iproute2 nft:nftables wrk nginx:nginx-light h2o lighttpd haproxy varnishd:varnish \
		apache2:apache2-bin php-fpm8.2:php8.2-fpm java:default-jre-headless tomcat10-instance-create:tomcat10-user \
		/usr/lib/nginx/modules/ngx_stream_module.so:libnginx-mod-stream
	@xtask/build.sh skep skep-bench skep-bpf-tests
	$(TARGET)/release/skep-bench $(BENCH)

conformance: ## Run the public suite of HTTP caches: CONFORMANCE="--id TEST"
	@xtask/need.sh cc cargo git node:nodejs npm
	cargo build --package skep --package skep-tests --bins
	$(TARGET)/debug/skep-conformance $(CONFORMANCE)

fuzz: ## Fuzz every parser for long: FUZZ_SECONDS=600 each
	@xtask/need.sh cc cargo
	cargo run --profile fuzz --package skep-fuzz -- all --seconds $(FUZZ_SECONDS)

fmt: ## Format the sources
	@xtask/need.sh cargo
	cargo fmt --all
