# The same commands for people and for CI. Each installs what it lacks.

PORT     ?= 8080
NODES    ?= 3
DISPATCH ?= proxy
SITE     ?= examples/site

FUZZ_SECONDS ?= 600
FUZZ := cargo run --release --manifest-path fuzz/Cargo.toml --

# Chosen from the whole workspace, so that libraries are built once, with the
# features that all later steps want.
XTASK = cargo build --quiet --workspace --bin xtask && $(TARGET)/debug/xtask

# Where rustup puts cargo, also for a shell that has not read its profile yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help up test lint fmt bench fuzz

help: ## This text
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

up: ## Build, then run a cluster on this machine: PORT=8080 NODES=3 DISPATCH=proxy SITE=DIR
	@xtask/need.sh cc cargo $(if $(filter direct,$(DISPATCH)),ip:iproute2 tc:iproute2 nft:nftables)
	cargo build --release --package skep
	$(TARGET)/release/skep up $(SITE) --nodes $(NODES) --dispatch $(DISPATCH) --node-header --listen 127.0.0.1:$(PORT)

# What tests run beside Skep: network namespaces, and real peers.
PEERS := ip:iproute2 tc:iproute2 nft:nftables unshare:util-linux setpriv:util-linux etcd:etcd-server clang llvm-strip:llvm

test: lint ## Every check that a change must pass
	@xtask/need.sh $(PEERS)
	$(XTASK) bpf --check
	cargo build --workspace --all-targets
	cargo test --workspace --doc
	cargo test --release --manifest-path fuzz/Cargo.toml
	$(FUZZ) all --seconds 5
	cargo test --workspace --tests

lint: ## The checks that run no test: format, clippy, tidy, dependencies, site, unit
	@xtask/need.sh cc cargo
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	$(XTASK) tidy
	$(XTASK) deny
	examples/sidecars.sh --check
	packaging/check.sh
	cargo clippy --workspace --all-targets -- --deny warnings
	cargo clippy --manifest-path fuzz/Cargo.toml --all-targets -- --deny warnings

bench: ## Measure Skep beside its peers, as root: BENCH="static --quick"
	@xtask/need.sh cc cargo ip:iproute2 nft:nftables wrk nginx:nginx-light h2o lighttpd haproxy varnishd:varnish \
		/usr/lib/nginx/modules/ngx_stream_module.so:libnginx-mod-stream
	cargo build --release --package skep --package skep-bench --package skep-bpf-tests
	$(TARGET)/release/skep-bench $(BENCH)

fuzz: ## Fuzz every parser for long: FUZZ_SECONDS=600 each
	@xtask/need.sh cc cargo
	$(FUZZ) all --seconds $(FUZZ_SECONDS)

fmt: ## Format the sources
	@xtask/need.sh cargo
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
