#!/bin/sh
# Build the images of edlz from this checkout:
#   edlz:<version>      what jobs run, and what `edlz zoo build` builds on; also edlz:latest
#   edlz:ci             with the model zoo in /model_zoo
#   edlz:data           the demo data in /data
#   edlz:dev            with compiler, test tools and demo data; also edlz:dev_allreduce: every strategy is in one package
# Arguments go to `docker build`: scripts/build_images.sh --build-arg BASE_IMAGE=python:3.12-slim
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

docker build "$@" -f docker/Dockerfile --target=runtime -t "edlz:$version" -t edlz:latest .
docker build "$@" -f docker/Dockerfile --target=ci -t edlz:ci .
docker build "$@" -f docker/Dockerfile.data --build-arg EDLZ_IMAGE="edlz:$version" -t edlz:data .
docker build "$@" -f docker/Dockerfile --build-arg DATA_IMAGE=edlz:data -t edlz:dev -t edlz:dev_allreduce .
