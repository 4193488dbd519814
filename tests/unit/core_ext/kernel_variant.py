"""A pytest plugin: compiled modules of the core from the folder KERNEL_VARIANT in place of those installed."""

import os

import edlz.core_ext

edlz.core_ext.__path__.insert(0, os.environ["KERNEL_VARIANT"])


def pytest_configure() -> None:
    from edlz.core_ext import dense

    assert dense.instruction_set() == os.environ["KERNEL_VARIANT_NAME"]
