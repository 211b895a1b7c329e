"""Pages of the documentation site that are not files of docs/: a hook of MkDocs (`make docs`).

The README is the site's first page; records under benchmarks/, the changelog and the like are pages at their own paths;
a file of code that a page links to becomes a page of its own; the reference lists what `__all__` of each package
exports, from its docstrings. Links are rewritten to match, so that all of them work here as they do in the repository.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LINK = re.compile(r'(\]\(|src=")([^)\s"]+)')
FENCE = re.compile(r"^(```|~~~)")
TOP_LEVEL = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PICTURES = (".png", ".jpg")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".slurm": "bash", ".sh": "bash", ".toml": "toml", ".json": "json"}


def site_path(repo_path: str) -> str | None:
    """Where a file of the repository is in the site; None for what is no file."""
    if repo_path == "README.md":
        return "index.md"
    if repo_path.startswith("docs/"):
        return repo_path.removeprefix("docs/")
    path = ROOT / repo_path
    if path.is_dir():
        return site_path(f"{repo_path}/README.md") if (path / "README.md").exists() else None
    if not path.exists():
        return None
    kept = repo_path.endswith((".md", *PICTURES))
    return repo_path if kept else f"source/{repo_path}.md"


def prose(markdown: str) -> Iterator[tuple[str, bool]]:
    """The lines of a page, each with whether links are read in it: not in a block of code."""
    code = False
    for line in markdown.splitlines(keepends=True):
        fence = FENCE.match(line) is not None
        yield line, not (code or fence)
        code ^= fence


def targets(markdown: str, repo_path: str) -> Iterator[str]:
    """Files of the repository that a page links to."""
    for line, read in prose(markdown):
        for _, target in LINK.findall(line) if read else ():
            if "://" not in target and not target.startswith(("#", "mailto:")):
                yield posixpath.normpath(posixpath.join(posixpath.dirname(repo_path), target.split("#")[0]))


def relink(markdown: str, repo_path: str) -> str:
    """The page with its links as the site has them."""
    own = site_path(repo_path)
    assert own is not None

    def moved(match: re.Match[str]) -> str:
        found = next(targets(f"{match[0]})", repo_path), None)
        there = None if found is None else site_path(found)
        if there is None:
            return match[0]
        anchor = match[2].partition("#")
        return match[1] + posixpath.relpath(there, posixpath.dirname(own) or ".") + anchor[1] + anchor[2]

    return "".join(LINK.sub(moved, line) if read else line for line, read in prose(markdown))


def exports(init: Path) -> dict[str, list[str]]:
    """What a package exports lazily: its modules, and the names of each."""
    for node in ast.walk(ast.parse(init.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy_exports":
            found: dict[str, str] = ast.literal_eval(node.args[1])
            return {module: names.split() for module, names in found.items()}
    return {}


def reference_pages() -> dict[str, str]:
    """A page for what `lookact` itself exports, and one for each package that exports more."""
    pages = {}
    for init in sorted((ROOT / "src/lookact").rglob("__init__.py")):
        package = ".".join(init.relative_to(ROOT / "src").parent.parts)
        # a recipe is read in its train.py
        if "recipes" in init.parts or not (modules := exports(init)):
            continue
        text = [
            f"# {package}\n",
            f"::: {package}\n    options:\n      members: false\n      show_root_heading: false\n",
        ]
        for module, names in modules.items():
            text.append(f"## `{package}.{module}`\n")
            text += [f"::: {package}.{module}.{name}\n" for name in names]
        pages[f"reference/{package.replace('.', '-')}.md"] = "\n".join(text)
    return pages


def source_page(repo_path: str) -> str:
    """A file of code as a page."""
    text = (ROOT / repo_path).read_text(encoding="utf-8")
    language = LANGUAGES.get(Path(repo_path).suffix, "text")
    return f"# {repo_path}\n\n~~~~{language}\n{text}\n~~~~\n"


def records() -> list[str]:
    """The READMEs of benchmarks/."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "benchmarks").glob("*/README.md"))


def generated() -> tuple[dict[str, str], set[str]]:
    """Pages by their path in the site, and pictures that lie beside them."""
    moved = ["README.md", *TOP_LEVEL, *records()]
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in moved}
    pages = {str(site_path(path)): relink(text, path) for path, text in texts.items()}
    texts |= {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in (ROOT / "docs").rglob("*.md")}
    linked = {target for path, text in texts.items() for target in targets(text, path)}
    for target in linked:
        if (there := site_path(target)) is not None and there.startswith("source/"):
            pages[there] = source_page(target)
    pictures = {target for target in linked if target.endswith(PICTURES) and not target.startswith("docs/")}
    return pages | reference_pages(), pictures


def on_files(files: Any, config: Any) -> Any:
    """MkDocs' hook: adds the generated pages."""
    from mkdocs.structure.files import File, InclusionLevel

    make: Callable[..., Any] = File.generated
    pages, pictures = generated()
    for path, text in pages.items():
        # sources are reached by links alone
        level = InclusionLevel.NOT_IN_NAV if path.startswith("source/") else InclusionLevel.UNDEFINED
        files.append(make(config, path, content=text, inclusion=level))
    for picture in pictures:
        files.append(make(config, picture, abs_src_path=str(ROOT / picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs' hook: rewrites the links of a file of docs/; generated pages have been."""
    return markdown if page.file.generated_by else relink(markdown, f"docs/{page.file.src_uri}")
