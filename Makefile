# make       build the compiled core in place
# make demo  train MNIST with 1 master, 2 parameter servers and 2 workers, on the data that ships with edlz
# make test  unit and cluster tests, lint, types; more: .venv/bin/tox -e fault | fuzz | slow | bench | py312 | py313
# Each does everything that it needs from a bare clone: Python 3.11 or newer, gcc and a package index.

# IMAGE_VENV: in the image edlz:dev, which has an environment.
VENV := $(or $(IMAGE_VENV),.venv)
EDLZ := $(VENV)/bin/edlz
DEMO_JOB := mnist-demo
BENCHMARKS :=  # all of them; or e.g. make bench BENCHMARKS="table ps"
SOURCES := $(wildcard core_ext/*.pyx core_ext/*.c core_ext/*.h) setup.py pyproject.toml

.PHONY: all demo test bench clean

all: $(VENV)/built

demo: $(VENV)/built
	$(EDLZ) zoo data mnist build/data/mnist --source=model_zoo/data
	$(EDLZ) train --model_def=mnist.mnist_functional_api.custom_model \
	    --training_data=build/data/mnist/train --validation_data=build/data/mnist/test \
	    --num_workers=2 --num_ps_pods=2 --num_epochs=8 --minibatch_size=32 \
	    --evaluation_steps=100 --job_name=$(DEMO_JOB) --fresh

test: $(VENV)/tools
	$(VENV)/bin/tox

bench: $(VENV)/tools
	$(VENV)/bin/tox -e bench -- $(BENCHMARKS)

$(VENV)/python-ready:
	scripts/make_venv.sh $(VENV)
	touch $@

$(VENV)/built: $(VENV)/python-ready $(SOURCES)
	scripts/install.sh $(VENV) -e .
	touch $@

$(VENV)/tools: $(VENV)/python-ready
	scripts/install.sh $(VENV) 'tox>=4.23' 'tox-uv>=1.16'
	touch $@

clean:
	rm -rf build dist .tox .venv core_ext/*.so core_ext/*.html *.egg-info
