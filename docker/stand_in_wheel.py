"""Write a wheel that holds nothing and is called tensorflow.

`tensorflow-cpu`, or a TensorFlow that came with the base image, is the same package under another name or in
another folder; with the stand-in, what requires `tensorflow` finds it.

Usage: python stand_in_wheel.py VERSION REQUIRED FOLDER
"""

import sys
import zipfile
from pathlib import Path


def main() -> None:
    version, required, folder = sys.argv[1:]
    info = f"tensorflow-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: tensorflow\nVersion: {version}\nSummary: Stands in for {required or 'the one of the system'}\n"
    if required:
        metadata += f"Requires-Dist: {required}=={version}\n"
    files = {
        "METADATA": metadata,
        "WHEEL": "Wheel-Version: 1.0\nGenerator: edlz\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files["RECORD"] = "".join(f"{info}/{name},,\n" for name in (*files, "RECORD"))
    path = Path(folder) / f"tensorflow-{version}-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(f"{info}/{name}", text)


if __name__ == "__main__":
    main()
