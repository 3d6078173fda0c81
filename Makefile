# Two commands do all the set-up on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
UV := VIRTUAL_ENV=.venv $(BIN)/uv
INSTALL := $(UV) pip install --quiet --compile-bytecode --constraint constraints.txt
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: run test check format lock clean oracle bench

run: .venv/.core ## the main job on the bundled runs, into reports/
	$(BIN)/capmodel run --out reports

test: .venv/.test ## everything the tests need, then the tests
	$(BIN)/python -m pytest

check: .venv/.test ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.test ## speed figures, printed
	$(BIN)/python benchmarks/speed.py

oracle: build/oracle/.ready ## counts, cache bytes and the lab against PyTorch and Transformers
	PYTHONPATH=. build/oracle/bin/python tools/oracle_weights.py
	PYTHONPATH=. build/oracle/bin/python tools/oracle_lab.py

build/oracle/.ready: Makefile
	test -x build/oracle/bin/python || $(PYTHON) -m venv build/oracle
	build/oracle/bin/python -m pip install --quiet torch==2.13.0 transformers==5.24.0 \
		pandas pyarrow threadpoolctl
	touch $@

lock: $(BIN)/uv ## pin the versions again; the file holds no host names
	$(BIN)/uv pip compile --quiet --universal --no-header --no-annotate --python-version 3.11 \
		--all-extras pyproject.toml -o constraints.txt

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache

$(BIN)/uv:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv

.venv/.core: pyproject.toml constraints.txt | $(BIN)/uv
	$(INSTALL) --editable .
	touch $@

.venv/.test: pyproject.toml constraints.txt | $(BIN)/uv
	$(INSTALL) --editable '.[test]'
	touch $@ .venv/.core

.venv/.browser: pyproject.toml constraints.txt | .venv/.test ## what the tests of the pages need
	$(INSTALL) --editable '.[test,browser]'
	touch $@

.PHONY: docs
docs: .venv/.core ## docs/ and the reference into build/docs, links and code blocks checked
	$(BIN)/python tools/docs.py
