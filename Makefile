# make TARGET [CUDA=13|12|none] [PYTHON=python3.12] [ARGS="--resume"]
#
# Every target makes .venv and installs what it needs into it: the first time, and whenever a pyproject.toml has
# changed. After that it does only what it is called for. Training needs a sixth of the disk that the rest does.

# The first Python that works: python3, else the newest. numba-cuda has no wheels for 3.15.
WORKS := -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python $(WORKS) 2>/dev/null && echo $$python && break; done)

# The CUDA toolkit to install: the one there is, at first 13; 12 is for drivers older than 580. Apple has none:
# kernels run in the simulator there, on Linux on the emulated GPU.
CUDA ?= $(or $(lastword $(subst -, ,$(firstword $(wildcard .venv/.installed-*)))),13)
ifeq ($(shell uname -s),Darwin)
override CUDA := none
endif

# What is installed, as files that say when: the package with the toolkit, or all there is.
BASE := .venv/.installed-base-cuda-$(CUDA)
ALL := .venv/.installed-all-cuda-$(CUDA)
BIN := .venv/bin

# What an environment says of itself counts for nothing where its Python does not run: in a container that works in
# a clone of its host, for instance.
$(if $(wildcard .venv/.installed-*),$(shell $(BIN)/python -c '' 2>/dev/null || rm -f .venv/.installed-*))

$(BASE): EXTRAS := $(if $(filter none,$(CUDA)),,[cu$(CUDA)])
$(BASE): WHAT := what training needs, a download of some 400 MB
$(ALL): EXTRAS := [torch$(if $(filter none,$(CUDA)),,-cu$(CUDA),mlir),roads,test,conformance,book,lint]
$(ALL): WHAT := everything, a download of up to 4 GB, most of it PyTorch with its CUDA libraries

.PHONY: help train test test-all conformance conformance-mlir sanitize lint format lab notebooks html book page book-serve bench install
.DEFAULT_GOAL := help

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 25
	@echo '  options: CUDA=13, 12 or none (here $(CUDA); remembered); PYTHON=python3.12'

train: $(BASE) ## train the course's network on MNIST, in about a minute (ARGS=--resume is passed on)
	$(BIN)/cnn-numba train $(ARGS)

test: $(ALL) ## prove every feature, docstrings and notebooks included
	$(BIN)/python -m pytest -m 'not exhaustive'

test-all: $(ALL) ## run all tests, those too that repeat what others prove
	$(BIN)/python -m pytest

conformance: $(ALL) ## run numba-cuda's own tests on the emulated GPU (10 to 30 minutes on two cores)
	$(BIN)/python tests/gpuless/conformance.py $(ARGS)

conformance-mlir: $(ALL) ## run numba-cuda-mlir's own tests likewise (ARGS=/path/to/a/clone of its repository)
	@$(if $(ARGS),,echo 'make: ARGS=/path/to/a/clone of numba-cuda-mlir is missing; its wheel has no tests' >&2; exit 1)
	$(BIN)/python tests/gpuless/conformance.py --mlir $(ARGS)

sanitize: $(ALL) ## check every kernel with NVIDIA's compute-sanitizer (needs a GPU and the CUDA toolkit)
	@command -v compute-sanitizer >/dev/null || { echo 'make: compute-sanitizer, of the CUDA toolkit, is not in PATH' >&2; exit 1; }
	for tool in memcheck racecheck initcheck; do \
		compute-sanitizer --tool $$tool --error-exitcode 1 --report-api-errors no --target-processes all \
			$$([ $$tool != initcheck ] || echo --check-api-memory-access no) \
			$(BIN)/python -m pytest -q -n 0 -o faulthandler_timeout=0 -m 'not gpu' $(wildcard tests/ops/test_*_gpu.py tests/beyond/*/test_*_gpu.py) tests/train/test_graphs.py || exit 1; done

lint: $(ALL) ## check style, formatting and types, notebooks included; the Dockerfile and the workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	$(BIN)/hadolint Dockerfile
	$(if $(wildcard $(BIN)/zizmor),$(BIN)/zizmor --offline --quiet .github)

format: $(ALL) ## repair style and formatting where that can be done automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Jupyter runs for root only when told so. In a container there is no browser to open, and the one outside
# reaches only a server that listens on all addresses; it asks for the token in the address printed.
LAB := --LabApp.default_url=/lab/tree/00_start_here.ipynb
# Exported pages stand alone: their links go to the repository.
LAB += --HTMLExporter.preprocessors=cnn_course.engine.export.RepositoryLinks
LAB += $(if $(filter 0,$(shell id -u)),--allow-root)
LAB += $(if $(or $(container),$(wildcard /.dockerenv /run/.containerenv)),--no-browser --ip=0.0.0.0)

lab: $(ALL) ## open the notebooks in JupyterLab (ARGS="--port 9999" are passed on to it)
	$(BIN)/jupyter lab notebooks $(LAB) $(ARGS)

notebooks: $(ALL) ## run every notebook from top to bottom and store its outputs
	$(BIN)/python -m cnn_course.engine.notebooks notebooks/*.ipynb

html: $(ALL) ## export every notebook as a page that stands alone, into build/html
	$(BIN)/jupyter nbconvert --to html --HTMLExporter.preprocessors=cnn_course.engine.export.RepositoryLinks \
		--output-dir build/html notebooks/*.ipynb

book: $(ALL) ## build the course as a site, into build/book/html
	$(BIN)/python docs/book/build.py

page: $(ALL) ## build that site with exercises that run in its pages (needs npm)
	$(BIN)/python docs/book/build.py --live

book-serve: book ## build the site and show it, at http://localhost:8000
	$(BIN)/python -m http.server --directory build/book/html 8000

bench: $(ALL) ## measure start-up and an epoch against PyTorch
	$(BIN)/cnn-numba bench startup
	$(BIN)/cnn-numba bench epoch

install: $(ALL) ## make .venv with everything in it, run nothing

# Two installers at once would write into the same folders.
.NOTPARALLEL:

$(BASE) $(ALL): pyproject.toml gpuless/pyproject.toml
	@$(or $(PYTHON),false) $(WORKS) 2>/dev/null || { \
		echo 'make: Python 3.11 to 3.14 is needed (numba-cuda has no wheels for 3.15), and $(or $(PYTHON),python3) is' \
			"$$($(or $(PYTHON),python3) -V 2>/dev/null || echo not there);" \
			'install one and name it: make PYTHON=/path/to/python3.14 ...' >&2; exit 1; }
	@echo 'Installing into .venv: $(WHAT), where it is not there yet. This takes minutes; pip shows warnings and errors only.'
	@$(BIN)/python $(WORKS) 2>/dev/null || $(PYTHON) -m venv --clear .venv || { rm -rf .venv; exit 1; }
	@# The pip of Python 3.11 cannot resolve what torch and numba-cuda ask of cuda-toolkit; newer ones can.
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=24.1'
	@# Most of the modules are never imported; those that are will be compiled then.
	@# Both packages are named, so that pip looks for neither elsewhere.
	@$(BIN)/python -m pip install --quiet --no-compile --editable ./gpuless --editable '.$(EXTRAS)'
	@rm -f $(filter-out $(BASE) $(ALL),$(wildcard .venv/.installed-*))
	@touch $(BASE) $@
