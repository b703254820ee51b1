# SPDX-License-Identifier: Apache-2.0
# make help lists what there is.

.PHONY: help build test test-long bench demo unit vm format clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

build: ## build bin/pvrdmad, static
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...

test: ## run every test; installs what the machine lacks
	scripts/test

test-long: ## the same for hours, and the planted faults
	LONG=1 FUZZ_TIME=15m PVRDMAD_SOAK=10m scripts/test

bench: ## measure against what the machine allows; leave it alone meanwhile
	scripts/setup
	go run ./tests/bench

demo: ## two virtual machines exchange data through the daemon; you watch
	scripts/setup
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...
	go run ./tests/vm/demo -daemon bin/pvrdmad

unit: ## the tests that need no virtual machine
	scripts/test setup unit

vm: ## the tests in virtual machines
	scripts/test setup vm

format: ## format the source
	go tool -modfile=tools/go.mod gofumpt -w .

clean: ## remove what was built; caches outside the checkout stay
	rm -rf bin out
