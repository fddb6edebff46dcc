# The only thing a user needs to type. The work is done by tools/ and by the
# Rust programs; here is what belongs to what.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup build install uninstall deb artifacts run run-under-linux test test-fresh soak campaign bench fuzz miri doc clean distclean

# The pinned toolchain comes first, whatever else the machine has (tools/lib.sh).
CHANNEL := $(shell sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
export PATH := $(or $(RUSTUP_HOME),$(HOME)/.rustup)/toolchains/$(CHANNEL)-x86_64-unknown-linux-gnu/bin:$(PATH):/usr/sbin:/sbin

BULKHEAD := target/release/bulkhead
HARNESS := target/release/bulkhead-harness

help: ## this list
	@echo 'Bulkhead: one machine, several sandboxes.'
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: ## install what is missing (as root, with sudo, or say what to run)
	@tools/setup.sh

build: setup ## build the command, the guests and what runs inside Linux
	@tools/build.sh

# PREFIX and DESTDIR reach the script as they were given, in the environment: no shell reads them.
install: build ## command, SDKs and monitors for projects outside of this tree; PREFIX=/usr/local, DESTDIR=
	@tools/install.sh

uninstall: ## remove exactly what `make install` put there; PREFIX and DESTDIR as there
	@tools/install.sh --remove

deb: build ## a Debian package of what `make install` installs, in target/deb
	@tools/deb.sh

artifacts: setup ## kernels, initramfs images and a Debian for the Linux guests, in target/artifacts
	@tools/artifacts.sh

run: build ## boot systems/demo.toml in QEMU; live with a terminal, else the scenario
	@$(BULKHEAD) run systems/demo.toml --report target/run/report.json

run-under-linux: build ## a Debian in QEMU gives a core to a flight controller while it runs, and takes it back
	@tools/under-linux.sh

test: build ## all tests; the last line is "N passed, N failed"; TEST="--filter line" for some
	@$(HARNESS) test $(TEST)

test-fresh: ## `make run` and `make test` in a fresh Debian 12 and 13; FRESH="--run trixie" for less
	@tools/fresh.sh $(FRESH)

soak: build ## jobs that `make test` leaves out, rogues at channels, floods, a million sets for the admission, hours of random exits (SOAK_SECONDS)
	@SOAK=1 $(HARNESS) test --left
	@SOAK=1 $(HARNESS) test --filter channel/rogue
	@SOAK=1 $(HARNESS) test --filter channel/flood
	@SOAK=1 $(HARNESS) test --filter sched/oracle
	@SOAK=1 $(HARNESS) test --filter sched/played
	@SOAK=1 $(HARNESS) test --filter fuzz/planted
	@SOAK=1 $(HARNESS) test --filter fuzz/machine

campaign: build ## 20,000 faults, one a run; goes on where it was left; CAMPAIGN="--shard 3/64" for a part
	@$(BULKHEAD) inject tests/inject/pair.toml --faults 20000 -o target/campaign.db --svg target/campaign.svg $(CAMPAIGN)

bench: build ## measure in deterministic virtual time; target/bench/results.json
	@$(HARNESS) bench

fuzz: build ## libFuzzer on what reads others' input, a minute each; FUZZ="600 pci" for others
	@tools/fuzz.sh $(FUZZ)

miri: setup ## what reaches shared memory under Miri, with a nightly toolchain that rustup fetches
	@tools/miri.sh

doc: setup ## the crates' documentation, in target/doc
	@cargo doc --no-deps --workspace

clean: ## remove what was built, keep what was fetched
	@rm -rf target/debug target/release target/x86_64-* target/run target/bench target/artifacts/*.cpio

distclean: ## remove everything that is not in the repository
	@rm -rf target
