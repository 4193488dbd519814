"""`edlz keys`: the keys of a job whose services are started by hand on several machines."""

from pathlib import Path
from typing import Annotated

import typer

from edlz.services.transport.keys import PUBLIC_FILE, ROLES, make_job_keys, secret_file, write_keys

__all__ = ["keys"]


def keys(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="a folder that does not exist")],
) -> None:
    """Make the keys of a job, for services on several machines."""
    write_keys(directory, make_job_keys())
    print(f"wrote the keys of one job to {directory}: {PUBLIC_FILE}, {', '.join(map(secret_file, ROLES))}")
    print(
        f"Each machine needs {PUBLIC_FILE} and the keys of what runs on it, copied by a safe way (scp).  Then:"
    )
    print(f"  python -m edlz.services.master --keys_dir={directory} --host=HOST ...")
    print(f"  python -m edlz.services.worker --keys_dir={directory} --master_addr=HOST:50001 ...")
