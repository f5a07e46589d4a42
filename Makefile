# Two commands are all a newcomer needs: `make demo` and `make test`. Each creates .venv if it is missing.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow lint docs size pins clean

.venv/base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[train]'
	touch $@

.venv/develop: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[test,lint,docs]'
	touch $@ .venv/base

demo: .venv/base  ## DP-FedEmb on the embedded data: metrics, statement, page
	$(BIN)/sfumato fedemb --config recipes/fedemb_glyphs/demo.yaml

# Many tests start a Python: without its bytecode each of them would compile all of sfumato. Trials fork this process,
# which takes half the time where its memory is in large pages.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test: .venv/develop  ## before each push: all tests but the slow ones, with a browser if one can be installed
	sh tests/install_chromium.sh
	$(PYTEST) -m "not slow"

test-slow: .venv/develop  ## the slow ones: recipes, the site, sizes, training until quality shows; all examples of properties
	sh tests/install_chromium.sh
	$(PYTEST) -m "slow or hypothesis" --hypothesis-profile full

lint: .venv/develop  ## style, types, layers, no circles
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: .venv/develop  ## the documentation site, in site/
	$(BIN)/mkdocs build --strict

AGAINST ?= origin/main

size:  ## lines, files and folders of each package, and what has changed since AGAINST
	-$(PYTHON) benchmarks/size.py $(if $(shell git rev-parse --quiet --verify $(AGAINST)),--against $(AGAINST))

pins:  ## renew constraints.txt: the newest versions that go together, in an environment of their own
	rm -rf .venv-pins
	$(PYTHON) -m venv .venv-pins
	sed '/^# Everything else/q' constraints.txt > .venv-pins/by-hand.txt
	.venv-pins/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-pins/by-hand.txt -e '.[test,lint,docs]'
	cp .venv-pins/by-hand.txt constraints.txt
	.venv-pins/bin/python -m pip freeze --exclude-editable | sed '/^torch==/d' >> constraints.txt
	rm -rf .venv-pins

clean:
	rm -rf .venv .venv-pins build dist site .pytest_cache .ruff_cache .hypothesis
