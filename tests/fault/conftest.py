"""What several fault tests compare with."""

from pathlib import Path

import pytest

from tests.fault.tiny_job import undisturbed_digest


@pytest.fixture(scope="session")
def sync_digest(tmp_path_factory: pytest.TempPathFactory, small_mnist: Path) -> str:
    """Of the tiny job in synchronous mode, undisturbed."""
    return undisturbed_digest(tmp_path_factory.mktemp("undisturbed"), small_mnist)
