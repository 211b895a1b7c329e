"""The documentation site's hook: links that leave docs/, generated pages, and a navigation that lists every page."""

from pathlib import Path

import yaml

from site_pages import exports, generated, records, relink, site_path

ROOT = Path(__file__).parents[2]


class Loader(yaml.SafeLoader):
    """Passes over tags that only MkDocs knows."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)


def listed(entry):
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in listed(part)]


def pages_in_navigation():
    return listed(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"])


def test_every_page_and_record_is_in_the_navigation_once_and_nothing_else():
    docs = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    made = {page for page in generated()[0] if not page.startswith("source/")}
    found = pages_in_navigation()
    assert len(found) == len(set(found))
    assert set(found) == docs | made
    assert set(records()) <= set(found)


def test_links_out_of_docs_lead_to_pages_of_the_site():
    page = "[a](../src/lookact/types.py) ![b](images/rooms.jpg) [c](../benchmarks/grid/README.md#runs) [d](https://x.y)"
    assert relink(page, "docs/viewer.md") == (
        "[a](source/src/lookact/types.py.md) ![b](images/rooms.jpg) [c](benchmarks/grid/README.md#runs) [d](https://x.y)"
    )
    assert relink("[e](../README.md#start)", "docs/viewer.md") == "[e](index.md#start)"
    assert relink("[f](docs/recipes/nav-rloo.md)", "README.md") == "[f](recipes/nav-rloo.md)"
    assert relink("[g](../../benchmarks/grid)", "docs/recipes/nav-rloo.md") == "[g](../benchmarks/grid/README.md)"


def test_code_is_left_as_it_is():
    page = "```md\n[a](../src/lookact/types.py)\n```\n"
    assert relink(page, "docs/viewer.md") == page


def test_every_link_of_a_generated_page_is_a_file():
    pages, pictures = generated()
    assert all((ROOT / picture).exists() for picture in pictures)
    assert any(page == "source/src/lookact/recipes/rloo/train.py.md" for page in pages)
    assert site_path("no/such/file.py") is None


def test_the_reference_lists_what_a_package_exports():
    assert exports(ROOT / "src/lookact/ops/__init__.py")["preference"] == [
        "bradley_terry",
        "disagreement",
        "pair_entropy",
    ]
    page = generated()[0]["reference/lookact-ops.md"]
    assert "::: lookact.ops.advantages.leave_one_out\n" in page
