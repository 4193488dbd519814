"""Link the root folders into FOLDER/edlz, so that tools that read files by path find `edlz.<folder>`.

Usage: python scripts/link_folders.py FOLDER
"""

import sys
from pathlib import Path

FOLDERS = ("api", "client", "core_ext", "k8s", "model_zoo", "services")


def main() -> None:
    root = Path(__file__).resolve().parent.parent
    package = Path(sys.argv[1]) / "edlz"
    package.mkdir(parents=True, exist_ok=True)
    for folder in FOLDERS:
        link = package / folder
        if not link.is_symlink():
            link.symlink_to(root / folder)


if __name__ == "__main__":
    main()
