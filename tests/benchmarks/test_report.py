from benchmarks.report import Aim, Row, compare, format_aims, format_ratio, page, plain
from benchmarks.timing import Timing


def timing(*seconds):
    return Timing(seconds, seconds, 100.0, 150.0, {})


def test_a_ratio_is_the_median_over_pairs_of_repetitions():
    # pairs give 2, 4 and 3: a slow moment that hit both sides of the second pair cancels out
    assert compare(timing(2.0, 40.0, 3.0), timing(1.0, 10.0, 1.0)) == (3.0, (2.0, 4.0))


def test_an_aim_includes_its_lower_bound_and_excludes_its_upper_one():
    assert Aim(3.0, at_least=True).met(3.0)
    assert not Aim(3.0, at_least=True).met(2.99)
    assert Aim(1.5, at_least=False).met(1.49)
    assert not Aim(1.5, at_least=False).met(1.5)


def test_a_row_says_its_ratio_and_its_aims():
    row = Row("x", "1 s", "4 s", 4.0, (3.5, 4.5), ("ratio at least 3", "frames/s at least 400"), (True, False))
    told = plain([row], about="a")["rows"][0]
    assert format_ratio(told) == "4.00 (3.50 to 4.50)"
    assert format_aims(told) == "ratio at least 3: met; frames/s at least 400: not met"


def test_the_page_holds_command_commit_and_every_row():
    rows = [Row("first", "1 s", "4 s", 4.0, (3.5, 4.5)), Row("second", "2 s", "not installed", None, None)]
    result = plain(rows, about="work", notes=["as it is"]) | {"load_average": 3.0, "cores": 2}
    text = page({"toy": result}, command="lookact bench toy", commit="abc")
    assert "`lookact bench toy` at commit `abc`" in text
    assert "| first | 1 s | 4 s | 4.00 (3.50 to 4.50) |  |  |" in text
    assert "| second | 2 s | not installed |  |  |  |" in text
    assert "- as it is" in text
    assert "other jobs ran beside the bench" in text
