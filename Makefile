# Two commands matter: `make serve` and `make test`. Both set themselves up.
.PHONY: setup setup-dev serve test test-all coverage check torture format bench messages docs reference pictures client lock package sbom clean

VENV := .venv
BIN := $(VENV)/bin

setup: ## .venv with the pinned versions and .venv/bin/chimes
	@sh tools/setup.sh run

setup-dev: ## the same plus the packages for tests and checks
	@sh tools/setup.sh dev

serve: setup ## start Chimes on the embedded store
	@$(BIN)/chimes serve

test: setup-dev ## checks and tests; tests for every store run on one or two of them (tests/selection.py)
	@sh tools/test.sh

test-all: setup-dev ## every check, every test on every store, mutation of the store suite, long torture
	@sh tools/test.sh --long
	@$(MAKE) --no-print-directory torture

coverage: setup-dev ## every test with branch coverage; lists uncovered lines and branches
	@sh tools/test.sh --long --cov --cov-report=term:skip-covered --cov-report=

check: setup-dev ## format, lint, import contracts, types, known vulnerabilities of pinned versions
	@$(BIN)/ruff format --check src tests bench
	@$(BIN)/ruff check src tests bench
	@$(BIN)/lint-imports
	@$(BIN)/mypy
	@$(BIN)/python tools/audit.py

torture: setup-dev ## two minutes of fault injection on each store
	@for store in pg mariadb redis sqlite json; do $(BIN)/python -m tests.system.torture $$store --minutes 2 || exit $$?; done

format: setup-dev
	@$(BIN)/ruff format src tests bench
	@$(BIN)/ruff check --fix src tests bench

bench: setup-dev ## benchmark, see bench/README.md; BENCH="--only claims" for one row
	@$(BIN)/python bench/run.py $(BENCH)

messages: setup-dev ## extract messages into src/chimes/locale and compile the catalogues
	@$(BIN)/python tools/messages.py

docs: setup-dev ## build the documentation site into site/; open site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

reference: setup-dev ## write the reference pages that are generated from code
	@$(BIN)/python tools/reference.py

pictures: setup-dev ## regenerate the pictures of the README from the demo
	@$(BIN)/python tools/pictures.py

client: setup-dev ## write the OpenAPI document and the types of the TypeScript client (needs npm)
	@$(BIN)/python tools/openapi.py
	@cd clients/typescript && npm ci --no-audit --no-fund && npm run generate

lock: setup-dev ## recompile the pins: names, versions and hashes, no addresses
	@sh tools/lock.sh

package: setup-dev ## wheel and source distribution into dist/
	@rm -rf dist
	@$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist
	@ls dist

sbom: setup-dev ## bill of materials (CycloneDX) and licences of the pinned packages into dist/
	@$(BIN)/python tools/sbom.py dist

clean:
	rm -rf site $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
