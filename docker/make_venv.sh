#!/bin/sh
# Make the virtual environment $1 with everything that edlz needs on a cluster, but edlz: the packages of
# pyproject.toml, TensorFlow as $TENSORFLOW says. The package indexes are those of package_index.sh, and
# $EXTRA_PYPI_INDEX.
set -eu
venv=$1
here=$(dirname "$0")
. "$here/package_index.sh"

python3 -m venv /opt/uv
/opt/uv/bin/pip install --quiet --no-cache-dir ${EXTRA_PYPI_INDEX:+--extra-index-url="$EXTRA_PYPI_INDEX"} uv
python3 -m venv --system-site-packages "$venv"
install() {
    /opt/uv/bin/uv pip install --quiet --no-cache --compile-bytecode --python="$venv/bin/python" \
        ${EXTRA_PYPI_INDEX:+--extra-index-url="$EXTRA_PYPI_INDEX"} "$@"
}
version_of() {
    "$venv/bin/python" -c "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))" "$1" 2>/dev/null
}
stand_in() {
    "$venv/bin/python" "$here/stand_in_wheel.py" "$1" "$2" /tmp/stand-in
    install --no-deps /tmp/stand-in/*.whl
}

if version=$(version_of tensorflow); then
    stand_in "$version" ''
else
    if [ -z "${TENSORFLOW:-}" ]; then
        case $(uname -m) in
        x86_64) TENSORFLOW=tensorflow-cpu ;;
        *) TENSORFLOW=tensorflow ;;
        esac
    fi
    install "$TENSORFLOW>=2.18,<3"
    if [ "$TENSORFLOW" != tensorflow ] && ! version_of tensorflow >/dev/null; then
        stand_in "$(version_of "$TENSORFLOW")" "$TENSORFLOW"
    fi
fi
install -r pyproject.toml
# What only builders of TensorFlow's own parts use, 490 MB: headers, a parser of C.  Names of inner functions, 230 MB.
packages=$(echo "$venv"/lib/python3*/site-packages)
rm -rf "$packages/tensorflow/include" "$packages/clang/native"
find "$packages/tensorflow" -name '*.so*' -type f -exec strip --strip-unneeded {} +
