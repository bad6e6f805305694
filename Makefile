# Two commands matter: `make serve` and `make test`. Both set themselves up.
.PHONY: setup setup-dev serve test check format bench lock clean

VENV := .venv
BIN := $(VENV)/bin

setup: ## .venv with the pinned versions and .venv/bin/chimes
	@sh tools/setup.sh run

setup-dev: ## the same, with what tests and checks need
	@sh tools/setup.sh dev

serve: setup ## start Chimes on the embedded store
	@$(BIN)/chimes serve

test: setup-dev ## every check and every test
	@sh tools/test.sh

check: setup-dev ## format, lint, import contracts, types
	@$(BIN)/ruff format --check src tests bench
	@$(BIN)/ruff check src tests bench
	@$(BIN)/lint-imports
	@$(BIN)/mypy

format: setup-dev
	@$(BIN)/ruff format src tests bench
	@$(BIN)/ruff check --fix src tests bench

bench: setup-dev ## measured, not asserted: see bench/README.md
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

lock: setup-dev ## compile the pins anew; names and hashes only, no address
	@sh tools/lock.sh

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
