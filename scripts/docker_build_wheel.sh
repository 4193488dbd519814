#!/bin/sh
# Build the wheel of this checkout in the image edlz:dev (or $1) and put it into build/, for `edlz zoo init
# --local_pkg_dir=build`. More arguments go to `docker run`.
set -eu
cd "$(dirname "$0")/.."
image=${1:-edlz:dev}
[ $# -eq 0 ] || shift
mkdir -p build
# The sources are copied: the checkout may belong to somebody else, and its build/ to another Python.
exec docker run --rm -u "$(id -u):$(id -g)" -v "$PWD:/v:ro" -v "$PWD/build:/out" "$@" "$image" sh -c '
    set -eu
    mkdir /tmp/source
    cd /v
    cp -r LICENSE MANIFEST.in README.md pyproject.toml setup.py api client core_ext k8s model_zoo services /tmp/source
    cd /tmp/source
    uv build --quiet --wheel --out-dir=/tmp/wheel
    cp /tmp/wheel/*.whl /out'
