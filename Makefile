# Everything a person or CI runs. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

ORACLE := $(CURDIR)/target/oracle/oracle
export MACHINIST_ORACLE := $(ORACLE)

# How many whole-machine tests run at once. They wait more than they compute: more than there are cores is quicker.
E2E_THREADS ?= $(shell nproc)

.PHONY: help up down demo check fmt words lint deps unit oracle test e2e testkit testkit-clean bench fuzz book reference crds manifests image deb sbom clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

up: ## Build machinist, start the hub and do the main job on an example
	scripts/up

down: ## Stop the hub
	scripts/up stop

demo: ## Show it: three machines, a rollout, a bad config undone (a minute)
	scripts/demo $(DEMO)

check: fmt words lint deps unit ## The fast loop: format, words, lint, dependencies, unit tests (layers among them)

fmt:
	cargo fmt --all --check

words: ## Fail on retired words (scripts/words.txt)
	scripts/check-words

deps: ## Check licences, sources and bans of the dependencies, and that each is used
	scripts/deps

lint:
	cargo clippy --locked --workspace --all-targets -- -D warnings

unit: oracle
	cargo test --locked

oracle: $(ORACLE)

$(ORACLE): $(wildcard tests/oracle/*.go tests/oracle/go.*)
	scripts/need go
	mkdir -p $(@D)
	cd tests/oracle && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -tags containers_image_openpgp -o $@ .

test: ## Everything: check, then whole machines and clusters (installs what it needs)
	scripts/test

testkit: ## Prepare the caches of the whole-machine tests
	scripts/testkit/prepare

testkit-clean: ## Remove those caches
	scripts/testkit/prepare clean

e2e: testkit ## The whole-machine tests alone; FILTER=name runs one
	cargo build --locked -p machinist
	cargo test --locked --no-fail-fast -p machinist-e2e -- --test-threads=$(E2E_THREADS) $(FILTER)

bench: ## Benchmarks with their budgets
	cargo bench --locked -p machinist-core
	cargo bench --locked -p machinist-hub --bench store
	cargo bench --locked -p machinist-e2e --bench hub
	cargo bench --locked -p machinist-e2e --bench server
	cargo build --release --locked -p machinist
	MACHINIST_BIN=$(CURDIR)/target/release/machinist cargo test --locked -p machinist-e2e --test rollout_scale --test daemon_benchmarks -- --ignored --nocapture

fuzz: ## Fuzz every target for a minute each (needs a nightly toolchain and cargo-fuzz)
	scripts/fuzz

book: ## Build the book of docs/ into target/book
	scripts/testkit/prepare mdbook
	scripts/book

reference: ## Write the generated pages of docs/reference anew
	MACHINIST_UPDATE=1 cargo test --locked -p machinist --lib cli::documented
	MACHINIST_UPDATE=1 cargo test --locked -p machinist --test docs -- fields names

crds: ## Write deploy/crds anew
	MACHINIST_UPDATE=1 cargo test --locked -p machinist-core --test api_crds

manifests: ## Write deploy/install.yaml and the Helm chart anew
	MACHINIST_UPDATE=1 cargo test --locked -p machinist --test deploy

image: ## The container image, in target/dist; BINARY=program packs that one
	scripts/image

deb: ## The Debian package, in target/dist; BINARY=program packs that one
	scripts/deb

sbom: ## The bill of materials, in target/dist
	scripts/sbom

clean: ## Remove what was built
	cargo clean
