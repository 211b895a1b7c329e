"""What is public is there, loads lazily and is documented; examples and docs import nothing else."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lookact

ROOT = Path(__file__).parent.parent
PACKAGES = ["lookact", *(found.name for found in pkgutil.walk_packages(lookact.__path__, "lookact.") if found.ispkg)]
EXPORTS = [(name, export) for name in PACKAGES for export in getattr(importlib.import_module(name), "__all__", ())]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in ROOT.glob("examples/**/*.py")]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
EXAMPLES += [
    (str(page.relative_to(ROOT)), code) for page in PAGES for code in FENCE.findall(page.read_text(encoding="utf-8"))
]


def private_imports(code: str) -> list[str]:
    """The names of the package that code imports though no `__all__` lists them."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "lookact":
            listed = getattr(importlib.import_module(str(node.module)), "__all__", ())
            found += [f"{node.module}.{name.name}" for name in node.names if name.name not in listed]
    return found


@pytest.mark.parametrize(("package", "name"), EXPORTS)
def test_an_export_is_there_and_documented(package, name):
    value = getattr(importlib.import_module(package), name)
    # a recipe's main is explained by its module
    assert value.__doc__ or sys.modules[value.__module__].__doc__, f"{package}.{name} has no docstring"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_export_hides_behind_a_module_of_its_name(package):
    module = importlib.import_module(package)
    modules = {found.name for found in pkgutil.iter_modules(module.__path__)}
    assert not modules & set(getattr(module, "__all__", ()))


def test_the_top_page_lists_every_public_name_and_no_other():
    table = lookact.__doc__.split("notice.")[1].split("The packages")[0]
    listed = re.findall(r"\b\w+\b", "\n".join(re.sub(r"\(.*\)", "", line[18:]) for line in table.splitlines()))
    assert set(lookact.__all__) <= set(listed)
    assert 30 <= len(lookact.__all__) <= 50


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(lookact.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.names[0].asname]
    assert sorted(name.asname for node in imports for name in node.names) == sorted(lookact.__all__)


def test_importing_the_package_is_quick_and_help_reads_well():
    code = "import lookact, sys; assert not {'torch', 'numpy', 'gymnasium'} & set(sys.modules); dir(lookact)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="module 'lookact' has no attribute 'Episod'"):
        _ = lookact.Episod


@pytest.mark.parametrize(("place", "code"), EXAMPLES, ids=[place for place, _ in EXAMPLES])
def test_examples_and_docs_import_what_is_public(place, code):
    assert private_imports(code) == []


def test_the_check_sees_a_private_import():
    assert private_imports("from lookact.ops.masked import zero_outside") == ["lookact.ops.masked.zero_outside"]
    assert private_imports("from lookact import Episode\nfrom lookact.ops import gae") == []
