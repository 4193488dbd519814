#!/bin/sh
# Make a virtual environment in folder $1: with uv if it is there or can be installed, else with venv and pip.
# Python: $PYTHON, or the newest of 3.11 to 3.13 that is on the PATH.
set -eu
venv=$1
python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3.11 python3.12 python3.13 python3; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
fi
if [ -z "$python" ]; then
    echo "error: no Python 3.11, 3.12 or 3.13 found" >&2
    echo "help: install one, or name it: PYTHON=/path/to/python3.11 make" >&2
    exit 1
fi
if ! command -v gcc >/dev/null && ! command -v cc >/dev/null; then
    echo "error: no C compiler found; edlz has a compiled core" >&2
    echo "help: install gcc and the Python headers (Debian: apt-get install gcc python3-dev)" >&2
    exit 1
fi
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check uv ||
    echo "uv cannot be installed here: pip does its work, slower" >&2
