"""docs/scaling.md tells what `lookact plan` says."""

import pytest

from plan_tables import PAGE, TABLES, plan_of, row


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def told(name):
    """The rows of a table in the page, by their first cell."""
    text = PAGE.read_text(encoding="utf-8")
    block = text.split(f"<!-- plan: {name} -->")[1].split(f"<!-- end of {name} -->")[0]
    return {cells(line)[0]: cells(line) for line in block.strip().splitlines()[2:]}


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_every_plan(name):
    assert list(told(name)) == list(TABLES[name])


@pytest.mark.parametrize(("name", "label"), [("server", "2B"), ("vla", "8")])
def test_the_page_tells_what_the_plan_says(name, label):
    said = row(label, plan_of(TABLES[name][label]))
    assert told(name)[label] == said, "run python tools/plan_tables.py"


@pytest.mark.slow
def test_a_preset_for_one_card_fits_it():
    label = "nav-rloo · 2b"
    plan = plan_of(TABLES["one card"][label])
    assert plan.fits
    assert told("one card")[label] == row(label, plan), "run python tools/plan_tables.py"
