#!/bin/sh
# Install packages into the virtual environment $1: by uv if it is in there or on the PATH, else by pip.
set -eu
venv=$1
shift
if [ -x "$venv/bin/uv" ]; then
    exec "$venv/bin/uv" pip install -q --python "$venv/bin/python" "$@"
elif command -v uv >/dev/null; then
    exec uv pip install -q --python "$venv/bin/python" "$@"
fi
exec "$venv/bin/python" -m pip install -q --disable-pip-version-check "$@"
