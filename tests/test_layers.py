"""A folder imports only from rows above it, and is blind to the folders beside it."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import lookact

PACKAGE = Path(lookact.__file__).parent
ROWS = (
    ("types", "batch", "protocols", "config", "seeding", "errors", "extras", "lazy"),
    ("ops", "text", "serving"),
    ("envs", "models", "judges", "data"),
    ("rollout", "training", "rewards"),
    ("algorithms", "vsi_bench"),
    ("plots", "planning"),
    ("tasks",),
    ("recipes",),
    ("viewer",),
    ("cli", "__main__"),
)
ROW = {name: row for row, names in enumerate(ROWS) for name in names}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def imported_modules(source: str) -> list[str]:
    """Every module a source imports, at the top or inside a function, as written out in full."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found += [f"{base}.{alias.name}" if base in ("lookact", ".", "..") else base for alias in node.names]
    return found


def violations(source: str, folder: str) -> list[str]:
    """The imports that a module of `folder` may not make."""
    wrong = []
    for module in imported_modules(source):
        if module.startswith("."):
            wrong.append(f"{folder} imports {module}: write it absolute")
        parts = module.split(".")
        if parts[0] != "lookact" or len(parts) == 1 or parts[1] == "__version__":
            continue
        target = parts[1]
        if target not in ROW:
            wrong.append(f"{folder} imports {module}: it stands in no row")
        # the files of the first row are one page in parts, and the command line is one folder
        elif ROW[target] >= ROW[folder] and target != folder and not ROW[target] == ROW[folder] in (0, len(ROWS) - 1):
            wrong.append(f"{folder} (row {ROW[folder]}) imports {module} (row {ROW[target]})")
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_from_rows_above(path):
    folder = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert folder in ROW, f"{folder} stands in no row: add it to the table here and in docs/architecture.md"
    assert violations(path.read_text(encoding="utf-8"), folder) == []


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("ops", "from lookact.training.run import Run"),
        ("ops", "import lookact.text.chat"),
        ("ops", "from lookact import text"),
        ("types", "import lookact.ops.masked as masked"),
        ("envs", "def f():\n    from lookact.models.vlm.tiny import make"),
        ("data", "if TYPE_CHECKING:\n    from lookact.envs.rooms.scene import Scene"),
        ("rollout", "from lookact.rewards import shaping"),
        ("training", "from lookact.cli import main"),
        ("recipes", "from lookact.viewer.app import serve"),
        ("training", "from . import config"),
        ("training", "from lookact.helpers import anything"),
    ],
)
def test_the_checker_sees_upward_and_sideways_imports(folder, source):
    assert len(violations(source, folder)) == 1


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("ops", "from lookact.types import Episode\nimport torch"),
        ("protocols", "from lookact.types import Episode"),
        (
            "training",
            "import lookact\nfrom lookact.training.optim import accumulate\nfrom lookact.data.demos import load",
        ),
        ("recipes", "from lookact.plots.learning_curve import draw"),
        ("cli", "from lookact import __version__\nfrom lookact.recipes import rloo"),
    ],
)
def test_the_checker_lets_downward_imports_pass(folder, source):
    assert violations(source, folder) == []


def imports_of(path: Path) -> set[str]:
    """The modules of the package that a module imports, under TYPE_CHECKING too."""
    modules = {".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in FILES}
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & modules


def test_no_module_imports_itself_by_way_of_others():
    graph = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): imports_of(path) for path in FILES}
    order = TopologicalSorter(graph)
    # raises CycleError, which names the cycle
    order.prepare()


def test_no_recipe_imports_another():
    for path in (PACKAGE / "recipes").rglob("*.py"):
        own = path.relative_to(PACKAGE / "recipes").parts[0]
        others = {module.split(".")[2] for module in imports_of(path) if module.startswith("lookact.recipes.")}
        assert others <= {own}, path


def test_a_recipe_folder_is_small_and_its_loop_can_be_read():
    for folder in (path for path in (PACKAGE / "recipes").iterdir() if (path / "train.py").exists()):
        files = sorted(path.name for path in folder.glob("*.py") if path.name != "__init__.py")
        assert len(files) <= 5, files
        assert (folder / "train.py").read_text(encoding="utf-8").count("\n") <= 250, folder


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 60
    ]
    assert long == []
