# `make chat` and `make test` do all the set-up a new machine needs.

PYTHON ?= python3
BIN := .venv/bin

SEEDS ?= 100000
ROUNDS ?= 100

.PHONY: chat test check fix bench chaos install install-dev

chat: install  ## chat with the bundled model; without a terminal, ask it one question
	@if [ -t 0 ] && [ -t 1 ]; then $(BIN)/hobnob; \
	else $(BIN)/hobnob ask "Name three uses of a paper clip." </dev/null; fi

test: install-dev  ## the whole test suite: no network, no GPU
	@$(BIN)/python tools/test.py $(ARGS)

check: install-dev  ## lint, format, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

fix: install-dev  ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: install-dev  ## ratios against other servers, see bench/README.md
	@$(BIN)/python -m bench $(ARGS)

chaos: install-dev  ## force of every kind, long: every cut, SEEDS= histories, ROUNDS= kills of each kind
	@HOBNOB_CUTS=all $(BIN)/python -m pytest -q tests/chaos/test_cuts.py tests/chaos/test_shapes.py
	@$(BIN)/python -m tests.chaos.simulate --seeds $(SEEDS)
	@$(BIN)/python -m tests.chaos.killers --rounds $(ROUNDS)

install:
	@$(PYTHON) tools/install.py chat

install-dev:
	@$(PYTHON) tools/install.py dev
