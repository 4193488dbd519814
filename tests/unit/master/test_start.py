"""What a master's process imports when it starts."""

import json
import subprocess
import sys

OF_SOME_JOBS = {
    "aiohttp",
    "crc32c",
    "edlz.services.master.page.metrics",
    "fsspec",
    "keras",
    "kubernetes",
    "prometheus_client",
    "pyarrow",
    "tensorflow",
    "typer",
}


def test_a_master_imports_nothing_that_only_some_jobs_need() -> None:
    code = "import sys, json, edlz.services.master.__main__; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert OF_SOME_JOBS & set(json.loads(done.stdout)) == set()
