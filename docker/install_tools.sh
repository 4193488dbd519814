#!/bin/sh
# What the development image has more: the tools of the tests, in an environment that any user may install the
# checkout into.
set -eu
. "$(dirname "$0")/package_index.sh"
venv=/opt/edlz
/opt/uv/bin/uv pip install --quiet --no-cache --python=$venv/bin/python -r $venv/pyproject.toml \
    --extra=test --extra=bench uv ${EXTRA_PYPI_INDEX:+--extra-index-url="$EXTRA_PYPI_INDEX"}
touch $venv/python-ready
chmod a+w $venv $venv/bin $venv/python-ready "$(echo $venv/lib/python3*/site-packages)"
find $venv/lib/python3*/site-packages/edlz* -type d -exec chmod a+w {} +
