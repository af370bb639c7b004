SHELL := bash
.SHELLFLAGS := -eo pipefail -c

# The two commands of the README; a test compares them with it.
TRY := python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/gptsh -m echo "hello"
TEST := python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && .venv/bin/python -m pytest

# A comma would end an argument of call.
comma := ,

# A new environment in a folder, with these packages; where uv is at hand it takes seconds.
ifneq ($(shell command -v uv),)
into = uv venv -q --clear $(if $(PYTHON),--python $(PYTHON)) $(1) && uv pip install -q --python $(1) $(2)
else
into = $(or $(PYTHON),python3) -m venv $(1) && $(1)/bin/pip install -q $(2)
endif

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' Makefile

check: test lint types ## What CI runs: the README's test command in this folder's .venv, then lint and types

try: ## The README's first command, and whether it answers
	$(TRY) | tee /dev/stderr | grep -qx 'You said: hello'

test: ## The README's second command: install into .venv, run the whole suite
	$(TEST)

.venv/bin/ruff:
	$(call into,.venv,-e '.[test]')

examples: .venv/bin/ruff ## Try the properties with new random examples, ten times; not in CI
	for round in {1..10}; do .venv/bin/python -m pytest -q --hypothesis-profile=examples tests/properties tests/unit; done

lint: .venv/bin/ruff ## Lint, format, and the workflows against GitHub's schema
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/check-jsonschema -q --builtin-schema vendor.github-workflows .github/workflows/*.yml

types: .venv/bin/ruff ## Strict types
	.venv/bin/mypy

.venv/bin/llm: | .venv/bin/ruff
	$(call into,.venv,-e '.[test$(comma)bench]')

bench: .venv/bin/ruff .venv/bin/llm ## Measure the budgets; fails when a row misses
	.venv/bin/python -m dev.benchmarks

measure: .venv/bin/ruff ## Measure the code: its size, the functions of a run, what each kind of run loads
	.venv/bin/python -m dev.measure

stress: .venv/bin/ruff ## Run the stress tests for half an hour and write docs/reliability.md; needs Linux and strace
	.venv/bin/python -m dev.stress

# shell-gpt does without a click of its own, and needs one; gptsh-cli 0.8 needs the first SDK of tool servers, and a
# litellm that goes with it.
.venv-comparison/gptsh-cli/bin/gptsh:
	mkdir -p .venv-comparison
	$(call into,.venv-comparison/llm,'llm>=0.36$(comma)<1')
	$(call into,.venv-comparison/shell-gpt,'shell-gpt>=1.5$(comma)<2' click)
	$(call into,.venv-comparison/gptsh-cli,'gptsh-cli>=0.8.3$(comma)<1' 'litellm<1.85' 'mcp<2')

comparison: .venv/bin/ruff .venv-comparison/gptsh-cli/bin/gptsh ## The same work by three tools like this one; a section of docs/reliability.md
	.venv/bin/python -m dev.stress comparison

.venv/bin/mutmut: | .venv/bin/ruff
	$(call into,.venv,-e '.[test$(comma)mutants]')

mutants: .venv/bin/mutmut ## Change the code in places of chance, and see whether a test fails; takes an hour
	.venv/bin/python -m dev.stress mutants

man: .venv/bin/ruff ## Write dev/man/gptsh.1 and docs/configuration.md from options, config keys and docs/
	.venv/bin/python -m dev.man.build

.venv/bin/mkdocs: | .venv/bin/ruff
	$(call into,.venv,-e '.[test$(comma)docs]')

docs: .venv/bin/ruff .venv/bin/mkdocs ## docs/ as a site in build/site; fails at a broken link, a sentence of 36 words, or what loads from elsewhere
	.venv/bin/python -m dev.man.sentences
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build -f dev/mkdocs.yml
	.venv/bin/python -m pytest -n 0 -m slow tests/slow/test_site.py

screenshot: .venv/bin/ruff ## Write the pictures of README and docs/, docs/*.svg; takes tmux
	.venv/bin/python -m dev.man.screenshot

recording: .venv/bin/ruff ## Write docs/session.cast, five minutes of gptsh for asciinema; takes bash and less
	.venv/bin/python -m dev.man.recording

# With another Python they have an environment of their own: make slow PYTHON=python3.13
PYTHON :=
slow: $(if $(PYTHON),other,.venv/bin/ruff) ## The tests that take their time
	.venv$(if $(PYTHON),-other)/bin/python -m pytest -m slow

other:
	$(call into,.venv-other,-e '.[test]')

coverage: export COVERAGE_FILE := $(CURDIR)/.coverage
coverage: .venv/bin/ruff ## What no test of the quick suite reaches; started processes are measured, too
	.venv/bin/coverage erase
	.venv/bin/coverage run -m pytest --timeout 300
	.venv/bin/coverage combine -q
	.venv/bin/coverage report

.venv-servers/bin/litellm:
	$(call into,.venv-servers,-e '.[test$(comma)servers]')

# nanobot needs the first SDK of tool servers and gptsh the second, so it has an environment of its own. 0.3.5 is the
# first release that writes a session's first line as the tests expect it. Tool servers of the older protocol run there.
.venv-nanobot/bin/nanobot:
	$(call into,.venv-nanobot,'nanobot-ai>=0.3.5$(comma)<0.4')

# llama.cpp's own server, as a wheel. gguf writes the model that it serves. Neither needs anything of gptsh.
.venv-llama/bin/gguf-dump:
	$(call into,.venv-llama,xllamacpp==2026.10.11549 'gguf>=0.19$(comma)<1' 'numpy>=2$(comma)<3')

# Without npm, the tests that need it are skipped.
.npm-servers/package-lock.json:
	mkdir -p .npm-servers
	! command -v npm >/dev/null || npm install --prefix .npm-servers --silent --no-audit --no-fund \
	  @copilotkit/aimock@1.43.0 @modelcontextprotocol/server-everything@2026.8.31

servers: .venv-servers/bin/litellm .venv-nanobot/bin/nanobot .venv-llama/bin/gguf-dump .npm-servers/package-lock.json ## Tests against real servers and tools from packages, each in an environment of its own
	.venv-servers/bin/python -m pytest -m servers

.PHONY: help examples check try test lint types bench measure stress comparison mutants man docs screenshot recording servers slow other coverage
