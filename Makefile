# Gatun's commands. `make help` lists them.
.DEFAULT_GOAL := help
CARGO ?= cargo
SECONDS ?= 60

.PHONY: help setup demo check test test-kernels deny book bench instructions fuzz model offload pair-model isp p4 p4-bmv2 rfc nightly

help: ## List the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: ## Install the Debian packages that demo and test need
	@scripts/setup

demo: ## Run an IPv6-only client against an IPv4-only server, through Gatun, tayga and the kernel
	@scripts/setup demo
	$(CARGO) build --release --package gatun --package gatun-scenarios
	target/release/gatun-scenarios demo

check: ## Check format, lints and unit tests: after each change
	@scripts/check

test: setup ## Run all checks: format, lints, documents, tests, requirements, oracles
	@scripts/test

deny: ## Check licences, duplicates, sources and advisories of dependencies, by cargo-deny
	@scripts/deny

test-kernels: setup ## Test the release binary on Debian 12's kernels, 6.1 and 6.12, in virtual machines
	@scripts/test-kernels

book: ## Build the documents as a book, by mdBook: target/book/docs/index.html
	@scripts/book

bench: ## Measure the engine in RAM: one flow, ten thousand, two million
	$(CARGO) build --release --package gatun-bench
	@scripts/bench

instructions: ## Count instructions per packet, by callgrind
	@scripts/instructions

fuzz: ## Run each fuzz target for SECONDS=60 seconds
	@scripts/fuzz $(SECONDS)

PACKETS ?= 100000000
model: ## Compare the engine with the naive model: PACKETS=100000000 packets of seeded histories
	$(CARGO) run --release --package gatun-model --bin gatun-model -- --packets $(PACKETS)

HISTORIES ?= 100000
offload: ## Check the offload manager: HISTORIES=100000 seeded histories of engines, manager, and a table or P4 switches
	$(CARGO) run --release --package gatun-model --bin gatun-offload-model -- --histories $(HISTORIES)
	$(CARGO) run --release --package gatun-model --bin gatun-offload-model -- --histories $(HISTORIES) --switches 2

STATES ?= 10000000
WALKS ?= 200000
pair-model: ## Visit the states of a pair and of a cluster that own ports together: STATES=10000000 of each scenario, and WALKS=200000 long histories
	$(CARGO) run --release --package gatun-pair-model -- --states $(STATES)
	$(CARGO) run --release --package gatun-cluster-model -- --states $(STATES)
	$(CARGO) run --release --package gatun-pair-model -- --walks $(WALKS)
	$(CARGO) run --release --package gatun-cluster-model -- --walks $(WALKS) --losses 1

nightly: ## Run what is too long for make test: AddressSanitizer, long fuzzing, a long run of the model
	@PACKETS=$(PACKETS) scripts/nightly

isp: ## Simulate two evening hours of a provider with ten thousand subscribers
	$(CARGO) run --release --package gatun-model --bin gatun-isp

p4: ## Compile the P4 program, and compare the results with the committed ones: needs p4c and jq
	@p4/build.sh --check

p4-bmv2: ## Measure BMv2 with Gatun as its controller: needs simple_switch_grpc, and skips without it
	@command -v simple_switch_grpc >/dev/null 2>&1 || { echo 'SKIPPED: simple_switch_grpc is not on PATH'; exit 0; }; \
	  scripts/bench-p4 --bmv2 && lab/run thesis --brief --rows BMv2

rfc: ## Print the requirements and the tests that prove them, and write docs/rfc/matrix.md
	@$(CARGO) xtask rfc --write
	@$(CARGO) xtask rfc
