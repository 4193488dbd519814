"""Build of the compiled core; everything else about the project stands in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

FOLDERS = ("api", "client", "core_ext", "k8s", "model_zoo", "services")
# -ffp-contract=off: every instruction set gives the same bits.  -fno-math-errno: sqrtf vectorises.
# Never -march=native or -Ofast: a wheel runs on any x86-64, and denormals are left alone.
FLAGS = ["-O3", "-fno-math-errno", "-ffp-contract=off", "-fopenmp-simd", "-g0"]

setup(
    packages=[f"edlz.{name}" for name in find_packages(include=[p for f in FOLDERS for p in (f, f"{f}.*")])],
    package_dir={f"edlz.{folder}": folder for folder in FOLDERS},
    package_data={
        "": ["py.typed", "*.pyi"],
        "edlz.k8s": ["manifests/*"],
        "edlz.model_zoo": ["data/*"],
        "edlz.services.master.page": ["page.*"],
    },
    ext_modules=cythonize(
        [
            Extension(
                "edlz.core_ext._dense",
                ["core_ext/_dense.pyx", "core_ext/dense.c"],
                include_dirs=["core_ext"],
                depends=[
                    "core_ext/_dense.pyx",
                    "core_ext/dense.h",
                    "core_ext/steps.h",
                    "core_ext/variants.h",
                ],
                extra_compile_args=FLAGS,
            ),
            Extension(
                "edlz.core_ext._ids",
                ["core_ext/_ids.pyx", "core_ext/ids.c"],
                include_dirs=["core_ext"],
                depends=[
                    "core_ext/_ids.pyx",
                    "core_ext/hashing.h",
                    "core_ext/ids.h",
                    "core_ext/variants.h",
                ],
                extra_compile_args=FLAGS,
            ),
            Extension(
                "edlz.core_ext._table",
                [
                    "core_ext/_table.pyx",
                    "core_ext/initializers.c",
                    "core_ext/region.c",
                    "core_ext/table.c",
                    "core_ext/table_batch.c",
                    "core_ext/table_digest.c",
                    "core_ext/table_image.c",
                    "core_ext/table_index.c",
                    "core_ext/table_rows.c",
                ],
                include_dirs=["core_ext"],
                depends=[
                    "core_ext/_table.pyx",
                    "core_ext/hashing.h",
                    "core_ext/initializers.h",
                    "core_ext/region.h",
                    "core_ext/steps.h",
                    "core_ext/table.h",
                    "core_ext/table_batch.h",
                    "core_ext/table_image.h",
                    "core_ext/table_index.h",
                    "core_ext/variants.h",
                ],
                extra_compile_args=FLAGS,
                extra_link_args=["-pthread"],
            ),
            Extension(
                "edlz.core_ext._columns",
                ["core_ext/_columns.pyx", "core_ext/columns.c"],
                include_dirs=["core_ext"],
                depends=["core_ext/_columns.pyx", "core_ext/columns.h"],
                extra_compile_args=FLAGS,
            ),
            Extension("edlz.core_ext._headers", ["core_ext/_headers.pyx"], extra_compile_args=FLAGS),
            Extension(
                "edlz.core_ext._scanning",
                ["core_ext/_scanning.pyx", "core_ext/scanning.c"],
                include_dirs=["core_ext"],
                depends=["core_ext/_scanning.pyx", "core_ext/scanning.h"],
                extra_compile_args=FLAGS,
            ),
            Extension("edlz.core_ext._tensors", ["core_ext/_tensors.pyx"], extra_compile_args=FLAGS),
            Extension("edlz.core_ext._wire", ["core_ext/_wire.pyx"], extra_compile_args=FLAGS),
        ],
        build_dir="build/cython",
    ),
)
