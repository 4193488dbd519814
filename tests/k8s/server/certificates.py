"""A certificate for the loopback address, made by the openssl command."""

import ssl
import subprocess
from pathlib import Path

__all__ = ["make_certificate"]


def make_certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Make a key and a self-signed certificate; return the server's context and what clients trust."""
    key, certificate = folder / "tls.key", folder / "ca.crt"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "7", "-subj", "/CN=edlz test cluster"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context, certificate
