# Everything a person does with this project. `make` alone lists it.
# Nothing here needs more than Python 3.11+ and make; the rest is installed into .venv, with hashes, on first use.
.DEFAULT_GOAL := help
.PHONY: help up test soak lint format bench protos mutations clean setup lock

# Empty means: find one. Name an interpreter with  make PYTHON=/path/to/python3.12 up
PYTHON ?=
export PYTHON
RUN := .venv/bin/python -m
# Passed on to the command of the target:  make test ARGS="tests/unit -k tokens"
ARGS ?=
SEED ?=

help: ## list these commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

setup:
	@sh requirements/setup.sh

up: setup ## start the whole stack, take a photo through it, and stay up until Ctrl-C
	@exec $(RUN) services.cli up --demo $(ARGS)

test: setup ## run every test on a real PostgreSQL and a real S3 server
	@exec $(RUN) pytest -n 2 --dist loadscope $(ARGS)

soak: setup ## the long rest of the chaos tests; SEED=n repeats one run of the storm
	@SOAK_SEED=$(SEED) $(RUN) pytest -m soak --timeout 900 $(ARGS)

lint: setup ## formatting, types, import rules, protos and SQL
	@sh .ci/lint $(ARGS)

format: setup ## rewrite the code the way the linter wants it
	@$(RUN) ruff check --fix-only -q . ; $(RUN) ruff format -q . && .venv/bin/buf format -w

bench: setup ## measure against bare pipelines and peers; prints ratios
	@exec $(RUN) tests.bench $(ARGS)

protos: setup ## generate the protobuf stubs into build/stubs

mutations: setup ## break the code on purpose, entry by entry, and check that the named tests notice
	@exec $(RUN) tests.mutations $(ARGS)

# The second lock is what an image gets: the same versions without the tools and the local servers.
lock: setup ## resolve pyproject.toml again into the two locks of requirements/
	@.venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--all-extras pyproject.toml -o requirements/lock.txt
	@.venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		-c requirements/lock.txt pyproject.toml -o requirements/services.txt

clean: ## remove everything generated, the environment and the local stack's state included
	@rm -rf .venv build .ninaku .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
