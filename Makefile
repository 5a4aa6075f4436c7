# The entry points for developers and CI. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

ORACLE := $(CURDIR)/target/oracle/oracle
export MACHINIST_ORACLE := $(ORACLE)

.PHONY: help up down demo check fmt words lint deps unit oracle test e2e nightly testkit testkit-clean bench fuzz book reference crds manifests image deb sbom clean clean-cache

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

up: ## Build machinist, start a hub and one machine, and configure it (needs no root)
	scripts/up

down: ## Stop the hub and the machine; their data stays
	scripts/up stop

demo: ## Run the demo: three machines, a rollout, a bad config that is rolled back (a minute)
	scripts/demo $(DEMO)

check: fmt words lint deps unit ## Run the fast checks: format, words, lint, dependencies, unit tests (with layers)

fmt:
	cargo fmt --all --check

words: ## Fail on retired words (scripts/words.txt)
	scripts/check-words

deps: ## Check licences, sources and bans of the dependencies, and that each is used
	scripts/deps

lint:
	cargo clippy --locked --workspace --all-targets -- -D warnings

# `--workspace` in all builds of tests: with other packages selected, dependencies get other features and are compiled
# again.
unit: oracle
	scripts/trim-target
	cargo test --locked --workspace --lib --bins --test integration
	cargo test --locked --workspace --doc

oracle: $(ORACLE)

$(ORACLE): $(wildcard tests/oracle/*.go tests/oracle/go.*)
	scripts/need go
	mkdir -p $(@D)
	cd tests/oracle && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -tags containers_image_openpgp -o $@ .

test: ## Run everything: check, then the whole-machine tests (installs what it needs)
	scripts/test

testkit: ## Prepare the caches of the whole-machine tests
	scripts/testkit/prepare

testkit-clean: ## Remove the caches of the whole-machine tests
	scripts/testkit/prepare clean

e2e: testkit ## Run only the whole-machine tests; FILTER=name selects some
	scripts/testkit/run $(FILTER)

nightly: testkit ## Run what takes too long for make test, and write docs/nightly.md (hours)
	scripts/nightly

bench: ## Run the benchmarks and check their budgets
	cargo bench --locked -p machinist-core
	cargo bench --locked -p machinist-hub --bench store
	cargo bench --locked -p machinist-e2e --bench hub
	cargo bench --locked -p machinist-e2e --bench server
	cargo build --release --locked -p machinist
	MACHINIST_BIN=$(CURDIR)/target/release/machinist cargo test --locked -p machinist-e2e --test whole_machine -- --ignored --nocapture rollout_scale:: daemon_benchmarks::

fuzz: ## Fuzz every target for a minute each (needs a nightly toolchain and cargo-fuzz)
	scripts/fuzz

book: ## Build the book of docs/ into target/book
	scripts/testkit/prepare mdbook
	scripts/book

reference: ## Regenerate the pages of docs/reference
	MACHINIST_UPDATE=1 cargo test --locked --workspace --lib cli::docs_test
	MACHINIST_UPDATE=1 cargo test --locked --workspace --test integration -- docs::fields docs::names access::table

crds: ## Regenerate deploy/crds
	MACHINIST_UPDATE=1 cargo test --locked --workspace --test integration api_crds::

manifests: ## Regenerate deploy/install.yaml and the Helm chart
	MACHINIST_UPDATE=1 cargo test --locked --workspace --test integration deploy::

image: ## Build the container image in target/dist; BINARY=file packs an existing binary, ARCH=arm64 builds for arm64
	scripts/image

deb: ## Build the Debian package in target/dist; BINARY=file packs an existing binary, ARCH=arm64 builds for arm64
	scripts/deb

sbom: ## Write the bill of materials to target/dist
	scripts/sbom

clean: ## Remove build outputs
	cargo clean

clean-cache: ## Remove build outputs that no current build uses, and unused test kit caches
	scripts/trim-target all
	scripts/testkit/prepare unused
