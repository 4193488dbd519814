"""The rooms of the product: folders that a reader can take in, and imports that run one way between them."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from configparser import ConfigParser
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("api", "client", "core_ext", "k8s", "model_zoo", "services")
MOST_FILES = 20
MOST_IN_FUNCTIONS = 10
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 500, 40  # of a function without its docstring
LONGER_MODULES = {"services/protocol/messages.py"}
LAYERED = ("client/", "k8s/", "services/")
LOADERS = {  # modules that load others by name, and how often: what a command, a user or a file asks for
    "api/__init__.py": 1,
    "client/__init__.py": 1,
    "client/cli.py": 2,
    "client/doctor/software.py": 2,
    "client/python/handle.py": 1,
    "services/inputs/known_formats.py": 1,
    "services/master/page/status_page.py": 1,
}
ENGINE = ("api/", "model_zoo/", "services/export/", "services/worker/engine/")

Found = tuple[
    str, str, bool
]  # the file that is imported, or a module that is not ours; whether in a function


@cache
def modules() -> dict[str, str]:
    """Return the file of each module of the product."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            found[f"edlz.{name}"] = file
    return found


def imported(node: ast.AST, *, is_inside: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the names of the modules that a piece of code imports, and whether it does so in a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, is_inside) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                yield (full if full in modules() else child.module), is_inside
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from imported(child, is_inside=is_inside or is_function)


@cache
def imports() -> tuple[tuple[str, str, bool], ...]:
    """Return of each import of the product: the file, the module, and whether it stands in a function."""
    return tuple(
        (file, module, is_inside)
        for file in modules().values()
        for module, is_inside in imported(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    )


def folder(file: str) -> str:
    return file.rpartition("/")[0]


def test_no_folder_is_too_full() -> None:
    files = Counter(folder(file) for file in modules().values() if not file.endswith("/__init__.py"))
    assert len(files) > 30
    assert {name: count for name, count in files.items() if count > MOST_FILES} == {}


def test_no_two_folders_import_each_other_not_even_by_way_of_others() -> None:
    """A folder and one in it are two; whoever only imports others goes first, until nobody is left."""
    above: dict[str, set[str]] = {folder(file): set() for file in modules().values()}
    for file, module, _ in imports():
        if module in modules() and folder(modules()[module]) != folder(file):
            above[folder(file)].add(folder(modules()[module]))
    assert sum(map(len, above.values())) > 100
    while bottom := {name for name, below in above.items() if not below}:
        above = {name: below - bottom for name, below in above.items() if name not in bottom}
    assert above == {}


def test_no_two_modules_import_each_other_not_even_by_way_of_others() -> None:
    names = {file: name for name, file in modules().items()}
    above: dict[str, set[str]] = {name: set() for name in modules()}
    for file, module, _ in imports():
        if module in modules() and module != names[file]:
            above[names[file]].add(module)
    while bottom := {name for name, below in above.items() if not below}:
        above = {name: below - bottom for name, below in above.items() if name not in bottom}
    assert above == {}


def test_the_layers_name_every_room_that_has_neighbours() -> None:
    """Whoever adds a room beside others says in `.importlinter` which of them it may import."""
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    layered = set()
    for contract in parser.values():
        outer = contract.get("containers", "").strip()
        for layer in re.findall(
            r"[\w.]+", contract.get("layers", "") + contract.get("exhaustive_ignores", "")
        ):
            layered.add(f"{outer}.{layer}" if outer else layer)
    rooms = {folder(file) for file in modules().values() if file.startswith(LAYERED)}
    beside = {
        room for room in rooms if sum(folder(other) == folder(room) for other in rooms) > 1 and "/" in room
    }
    assert len(beside) > 30
    assert {room for room in beside if f"edlz.{room.replace('/', '.')}" not in layered} == set()


def test_all_cores_are_among_those_that_do_no_io() -> None:
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    named = parser["importlinter:contract:cores"]["source_modules"].split()
    cores = {room for room in map(folder, modules().values()) if room.endswith("/core")}
    assert len(cores) == 3
    assert {core for core in cores if f"edlz.{core.replace('/', '.')}" not in named} == set()


def test_modules_and_functions_are_of_a_size_to_be_read() -> None:
    long_modules, long_functions = set(), set()
    for file in modules().values():
        text = (ROOT / file).read_text(encoding="utf-8")
        if text.count("\n") > MOST_LINES:
            long_modules.add(file)
        for node in ast.walk(ast.parse(text)):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and lines_of(node) > MOST_LINES_OF_A_FUNCTION:
                long_functions.add(f"{file}: {node.name}")
    assert long_modules <= LONGER_MODULES
    assert long_functions == set()


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how long a function is, without its docstring."""
    first = function.body[0]
    is_told = ast.get_docstring(function) is not None
    assert function.end_lineno is not None
    assert first.end_lineno is not None
    return function.end_lineno - function.lineno + 1 - (first.end_lineno - first.lineno + 1 if is_told else 0)


def test_imports_stand_at_the_top_with_few_exceptions() -> None:
    inside = {(file, module) for file, module, is_inside in imports() if is_inside and module in modules()}
    assert 0 < len(inside) <= MOST_IN_FUNCTIONS
    for file, count in Counter(file for file, _ in inside).items():
        reasons = (ROOT / file).read_text(encoding="utf-8").count("# Not above: ")
        assert reasons == count, f"{file}: say why an import stands in a function"


def test_few_modules_load_others_by_name() -> None:
    found = Counter[str]()
    for file in modules().values():
        found[file] = len(
            re.findall(r"\bimport_module\(|\b__import__\(", (ROOT / file).read_text(encoding="utf-8"))
        )
    assert {file: count for file, count in found.items() if count} == LOADERS


def test_only_the_engine_and_exports_import_tensorflow() -> None:
    heavy = {file for file, module, _ in imports() if module.partition(".")[0] in ("tensorflow", "keras")}
    assert any(file.startswith("services/worker/engine/") for file in heavy)
    assert {file for file in heavy if not file.startswith(ENGINE)} == set()


def test_each_change_of_the_table_begins_in_a_room_that_is_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = text.partition("| To … | begin in |")[2].partition("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines()[2:]]
    assert len(rows) >= 20
    for _, change, room, _ in rows:
        named = re.findall(r"`([^`]+)`", room)
        folders = [name for name in named if name.endswith("/")]
        assert folders, change
        assert all((ROOT / name).is_dir() for name in folders), change
        files = [name for name in named if name.endswith(".py") and "/" not in name]
        assert all((ROOT / folders[0] / name).is_file() for name in files), change
