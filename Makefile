# Each target is one line that a reader can type. Needed: git, make, Python 3.11+ with venv.

PYTHON ?= python3
BIN := .venv/bin
CDK := $(BIN)/python -m infra
PROVE := PYTHONPATH=layers:cli:. $(BIN)/python -m tests

.DEFAULT_GOAL := help
.PHONY: help install demo demo-aws up down test test-long simulate crashes model mutants fuzz soak check docs tour site bench synth deploy bootstrap destroy clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(BIN)/.installed ## Create the virtual environment (other targets do this when needed)

.nextfire/uv/bin/uv: requirements-uv.txt
	$(PYTHON) -m venv .nextfire/uv && .nextfire/uv/bin/pip install --quiet --require-hashes -r $<
	touch $@

$(BIN)/.installed: pyproject.toml uv.lock | .nextfire/uv/bin/uv
	.nextfire/uv/bin/uv sync --frozen --python $(PYTHON) && touch $@

# What `nextfire up` needs: a tenth of what `install` creates, which adds what developers need.
$(BIN)/nextfire: pyproject.toml uv.lock | .nextfire/uv/bin/uv
	.nextfire/uv/bin/uv sync --frozen --inexact --no-default-groups --extra local --python $(PYTHON) && touch $@

# What the CDK app and the emulator need: two thirds.
$(BIN)/.infra: pyproject.toml uv.lock | .nextfire/uv/bin/uv
	.nextfire/uv/bin/uv sync --frozen --inexact --no-default-groups --group infra --group local --extra local --python $(PYTHON) && touch $@

demo: $(BIN)/nextfire ## Start a local stack and watch a job run on it
	$(BIN)/nextfire demo

demo-aws: $(BIN)/.infra ## The same on the AWS app, deployed into an emulator
	$(BIN)/nextfire demo --emulator

up: $(BIN)/$(if $(filter yes,$(STRICT)),.infra,nextfire) ## Start the local stack; Ctrl-C stops it and keeps its data. STRICT=yes: the AWS app behind AWS's limits
	$(BIN)/nextfire up $(if $(filter yes,$(STRICT)),--emulator --strict)

down: $(BIN)/nextfire ## Stop the local stack and remove its data; also ends one that was left behind
	$(BIN)/nextfire down --yes

test: install ## Run all tests
	$(BIN)/python -m tests

test-long: install ## What takes long: many more seeds, pairs of crashes, fuzzing, a soak; three hours
	NEXTFIRE_LONG=1 $(BIN)/python -m tests

simulate: install ## Play histories under faults; SEEDS=n (2000), or SEED=n to read one
	$(PROVE).simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),2000))

crashes: install ## Kill every AWS call of every flow, one at a time and in pairs; minutes
	$(PROVE).crashes

model: install ## Explore the models of the protocol, and their broken versions
	$(PROVE).model --long

mutants: install ## Take away each guard that the design leans on; two hours or more
	$(PROVE).mutation

fuzz: install ## Feed the API and the decoders what nobody would write; EXAMPLES=n (1000)
	$(PROVE).fuzz --examples $(or $(EXAMPLES),1000)

soak: install ## Kill processes of a local stack at random, account for all; MINUTES=n (10), STACK=strict or embedded
	$(PROVE).soak --minutes $(or $(MINUTES),10) --stack $(or $(STACK),emulator)

check: install ## Lint, format, types, import contracts
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy . && $(BIN)/lint-imports

docs: install ## Generate the reference pages from the API, the job, the settings, the command and the client
	for page in reference job_reference settings_reference cli_reference client_reference; do PYTHONPATH=layers:cli:. $(BIN)/python -m docs.$$page || exit 1; done

tour: install ## Type the tutorial's commands in tmux, and write their screens to docs/tour.md
	PYTHONPATH=layers:cli:. $(BIN)/python -m docs.tour

site: .nextfire/docs/.installed ## Build the searchable documentation into site/; fails on dead links
	.nextfire/docs/bin/sphinx-build --fail-on-warning --keep-going --quiet -d .nextfire/doctrees -c docs . site

.nextfire/docs/.installed: pyproject.toml uv.lock | .nextfire/uv/bin/uv
	UV_PROJECT_ENVIRONMENT=.nextfire/docs .nextfire/uv/bin/uv sync --frozen --only-group docs --python $(PYTHON) && touch $@

bench: install ## Run a benchmark (NAME=…); without NAME, list them
	$(BIN)/python -m benchmarks $(NAME)

synth: $(BIN)/.infra ## Write the CloudFormation template to cdk.out; needs no credentials
	$(CDK) synth --quiet

bootstrap: $(BIN)/.infra ## Prepare the AWS account and region of your credentials for the CDK, once
	$(CDK) bootstrap

deploy: $(BIN)/.infra ## Deploy to the AWS account and region of your credentials
	$(CDK) deploy

destroy: $(BIN)/.infra ## Remove the stack and keep its data; DATA=yes deletes the data too
	$(CDK) destroy $(if $(filter yes,$(DATA)),-c removeData=true)

clean: ## Delete what was built; local data stay
	rm -rf .venv cdk.out site .nextfire/uv .nextfire/docs .nextfire/doctrees .nextfire/build .nextfire/aws-cdk-* .nextfire/dynamodb-local-*
