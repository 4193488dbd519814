# To be sourced in build steps: lets pip, uv and Python reach the package index that the build arguments name.
#   PIP_INDEX_URL, PIP_TRUSTED_HOST   as pip knows them; uv has other names for them
#   CA_CERTIFICATES   a PEM file [/build/ca.pem]; if it holds certificates, they count beside the system's
#   CA_ALL            where both are put together [/tmp/ca-bundle.pem]
[ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX="$PIP_INDEX_URL"
[ -z "${PIP_TRUSTED_HOST:-}" ] || export UV_INSECURE_HOST="$PIP_TRUSTED_HOST"
ca_given=${CA_CERTIFICATES:-/build/ca.pem} ca_all=${CA_ALL:-/tmp/ca-bundle.pem}
if grep -q 'BEGIN CERTIFICATE' "$ca_given" 2>/dev/null; then
    : >"$ca_all"
    [ ! -f /etc/ssl/certs/ca-certificates.crt ] || cat /etc/ssl/certs/ca-certificates.crt >>"$ca_all"
    cat "$ca_given" >>"$ca_all"
    export PIP_CERT="$ca_all" SSL_CERT_FILE="$ca_all" REQUESTS_CA_BUNDLE="$ca_all"
fi
