"""An S3 server on this machine, from the package index: what is put there is gone with it."""

import contextlib
import secrets
from collections.abc import Iterator

import pytest

__all__ = ["s3_place"]


@contextlib.contextmanager
def s3_place(environment: pytest.MonkeyPatch) -> Iterator[str]:
    """Start a server with a bucket, and set the environment so that processes find it; yield the bucket's address."""
    s3fs = pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "a-name",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            environment.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        bucket = f"rows-{secrets.token_hex(4)}"  # all servers of a process have the same ones
        s3fs.S3FileSystem().mkdir(bucket)
        yield f"s3://{bucket}"
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()
