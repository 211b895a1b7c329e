"""tools/count_lines.py [FOLDER]: lines of Python by package, and what they are.

Prints files, physical lines, and of these blank lines, docstrings, comments and imports; code is what is left. FOLDER
is `src/lookact` unless it is given. `--markdown` prints the table of docs/architecture.md.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

KINDS = ("files", "lines", "blank", "docstrings", "comments", "imports", "code")
PACKAGE = Path(__file__).parent.parent / "src" / "lookact"


def count(source: str) -> Counter[str]:
    """A file's lines by kind. A line is of one kind: a comment behind code is code."""
    docstrings, imports = set[int](), set[int]()
    for node in ast.walk(ast.parse(source)):
        lines = range(node.lineno, node.end_lineno + 1) if isinstance(node, ast.stmt) and node.end_lineno else range(0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(lines)
        # below a class, a function or a field, as well as at the head of a file
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(lines)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {
        token.start[0]
        for token in tokens
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip()
    }
    found = Counter[str](files=1)
    for number, line in enumerate(source.splitlines(), 1):
        found["lines"] += 1
        if number in docstrings:
            found["docstrings"] += 1
        elif not line.strip():
            found["blank"] += 1
        elif number in comments:
            found["comments"] += 1
        else:
            found["imports" if number in imports else "code"] += 1
    return found


def by_package(folder: Path) -> dict[str, Counter[str]]:
    """The counts of each folder in `folder`, and of the files that stand in it as `.`."""
    packages: dict[str, Counter[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        name = parts[0] if len(parts) > 1 else "."
        packages.setdefault(name, Counter()).update(count(path.read_text(encoding="utf-8")))
    return packages


def table(packages: dict[str, Counter[str]], *, markdown: bool) -> str:
    """A row a package, the largest first, and their sum."""
    rows = sorted(packages.items(), key=lambda item: -item[1]["lines"])
    rows.append(("all", sum(packages.values(), Counter())))
    cells = [["package", *KINDS], *([name, *(f"{counts[kind]:,}" for kind in KINDS)] for name, counts in rows)]
    if not markdown:
        return "\n".join(f"{row[0]:<12}" + "".join(f"{cell:>12}" for cell in row[1:]) for row in cells)
    cells.insert(1, ["---", *["---:"] * len(KINDS)])
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=PACKAGE)
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    arguments = parser.parse_args()
    print(table(by_package(arguments.folder), markdown=arguments.markdown))


if __name__ == "__main__":
    main()
