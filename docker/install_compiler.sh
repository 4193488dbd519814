#!/bin/sh
# Install a C compiler and the headers of the Python that is there, and the packages named.
# The certificates of package_index.sh count for apt too.
set -eu
. "$(dirname "$0")/package_index.sh"
has_headers() {
    python3 -c 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null
}
packages="$*"
command -v gcc >/dev/null || packages="$packages gcc libc6-dev"
has_headers || packages="$packages python3-dev"
if [ -z "$packages" ]; then
    exit 0
fi
trusted=${SSL_CERT_FILE:+-oAcquire::https::CaInfo=$SSL_CERT_FILE}
apt-get $trusted update -qq
# shellcheck disable=SC2086  several words are meant
DEBIAN_FRONTEND=noninteractive apt-get $trusted install -y -qq --no-install-recommends $packages >/dev/null
rm -rf /var/lib/apt/lists/*
