# SPDX-License-Identifier: Apache-2.0
# make help lists what there is.

# Where make install puts things: below DESTDIR, for packages.
DESTDIR ?=
BIN ?= bin

.PHONY: help build install test test-long bench demo unit vm format clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

build: ## build bin/pvrdmad, static
	CGO_ENABLED=0 go build -trimpath -o $(BIN)/ ./cmd/...

install: build ## install the daemon and its unit; a configuration that is there stays
	install -D -m 755 $(BIN)/pvrdmad $(DESTDIR)/usr/bin/pvrdmad
	install -D -m 644 deploy/pvrdmad.service $(DESTDIR)/usr/lib/systemd/system/pvrdmad.service
	install -D -m 644 deploy/guests.d/example.toml $(DESTDIR)/usr/share/doc/pvrdmad/example.toml
	install -d -m 755 $(DESTDIR)/etc/pvrdmad/guests.d
	[ -e $(DESTDIR)/etc/pvrdmad/pvrdmad.toml ] || install -m 644 deploy/pvrdmad.toml $(DESTDIR)/etc/pvrdmad/pvrdmad.toml

test: ## run every test; installs what the machine lacks
	scripts/test

test-long: ## the same for hours, and the planted faults
	LONG=1 FUZZ_TIME=15m PVRDMAD_SOAK=10m scripts/test

bench: ## measure against what the machine allows; leave it alone meanwhile
	scripts/setup
	go run ./tests/bench

demo: ## two virtual machines exchange data through the daemon; you watch
	scripts/setup
	@echo "demo: compiling, minutes the first time"
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
