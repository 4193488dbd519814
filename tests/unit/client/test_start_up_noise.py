"""What TensorFlow's C++ code says when it starts is dropped from standard error, and nothing else is."""

import subprocess
import sys

PROGRAM = """
import os, sys
from edlz.client.local.start_up_noise import without_start_up_noise
with without_start_up_noise():
    os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\\n")
    os.write(2, b"I0000 00:00:1795884828.306367   25950 port.cc:153] oneDNN custom operations are on.\\n")
    print("the user's own", file=sys.stderr)
    os.write(2, b"E0000 00:00:1795884828.306367   25950 cuda_platform.cc:52] failed call\\nno line end")
print("", file=sys.stderr)
print("error: as ever", file=sys.stderr)
"""


def test_only_noise_is_dropped() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stderr == "the user's own\nno line end\nerror: as ever\n"
