# The same commands for people and for CI. Each installs what it lacks.

PORT     ?= 8080
NODES    ?= 3
DISPATCH ?= proxy
SITE     ?= examples/site

# Where rustup puts cargo, also for a shell that has not read its profile yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help up test lint fmt bench fuzz

help: ## This text
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

up: ## Build, then run a cluster on this machine: PORT=8080 NODES=3 DISPATCH=proxy SITE=DIR
	@xtask/need.sh cc cargo
	cargo build --release --package skep
	$(TARGET)/release/skep up $(SITE) --nodes $(NODES) --dispatch $(DISPATCH) --listen 127.0.0.1:$(PORT)

test: lint ## Every check that a change must pass
	cargo build --workspace --all-targets
	cargo test --workspace --doc
	@$(MAKE) --no-print-directory fuzz SECONDS_EACH=5
	cargo test --workspace --tests

lint: ## The checks that need no test run: format, clippy, tidy, dependencies, site, unit
	@xtask/need.sh cc cargo
	cargo fmt --all --check
	cargo xtask tidy
	cargo xtask deny
	cargo clippy --workspace --all-targets -- --deny warnings
	examples/sidecars.sh --check
	packaging/check.sh

fmt: ## Format the sources
	@xtask/need.sh cargo
	cargo fmt --all
