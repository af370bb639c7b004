# The two commands of the README are run as they stand there: its first and its second fenced block.
readme = awk -v want=$(1) '/^```/ { inside = !inside; if (inside) n++; next } inside && n == want' README.md

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' Makefile

check: test lint types ## What CI runs: the README's test command in this folder's .venv, then lint and types

try: ## The README's first command, and whether it answers
	$(call readme,1) | bash -eo pipefail | tee /dev/stderr | grep -qx 'You said: hello'

test: ## The README's second command: install into .venv, run the whole suite
	$(call readme,2) | bash -eo pipefail

.venv/bin/ruff:
	python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]'

lint: .venv/bin/ruff ## Lint and format
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: .venv/bin/ruff ## Strict types
	.venv/bin/mypy

.venv/bin/llm: | .venv/bin/ruff
	.venv/bin/pip install -q -e '.[test,bench]'

bench: .venv/bin/ruff .venv/bin/llm ## Measure the budgets; fails when a row misses
	.venv/bin/python -m benchmarks

man: .venv/bin/ruff ## Write man/gptsh.1 from the option table and the README
	.venv/bin/python -m man.build

screenshot: .venv/bin/ruff ## Write the pictures of the README, man/*.svg; takes tmux
	.venv/bin/python -m man.screenshot

slow: .venv/bin/ruff ## The tests that take their time
	.venv/bin/python -m pytest -m slow

.venv-servers/bin/litellm:
	python3 -m venv .venv-servers && .venv-servers/bin/pip install -q -e '.[test,servers]'

# nanobot needs the first SDK of tool servers and gptsh the second, so it has an environment of its own. 0.3.5 is the
# first release that writes a session's first line as the tests expect it.
.venv-nanobot/bin/nanobot:
	python3 -m venv .venv-nanobot && .venv-nanobot/bin/pip install -q 'nanobot-ai>=0.3.5,<0.4'

servers: .venv-servers/bin/litellm .venv-nanobot/bin/nanobot ## Tests against real servers and tools from packages, each in an environment of its own
	.venv-servers/bin/python -m pytest -m servers

# The server needs nothing of gptsh, and is built from source, so it has an environment of its own. 0.3.36 is the
# release that was tried; gguf 0.19 writes what that reads.
.venv-llama/bin/gguf-dump:
	python3 -m venv .venv-llama && .venv-llama/bin/pip install -q 'llama-cpp-python[server]>=0.3.36,<0.4' 'gguf>=0.19,<1'

llama: .venv/bin/ruff .venv-llama/bin/gguf-dump ## Tests against a real llama.cpp server with a model of its own making; builds it first
	.venv/bin/python -m pytest -n 0 -m llama

.PHONY: help check try test lint types bench man screenshot servers llama slow
