import re

from lookact.viewer.page import STATIC, bundle, one_page, static_files

NAMES = re.compile(r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)


def test_every_file_is_small_and_says_what_it_is_for():
    for path in STATIC.glob("*.js"):
        text = path.read_text()
        assert text.startswith("// "), path.name
        assert text.count("\n") < 250, path.name
        assert max(map(len, text.splitlines())) <= 120, path.name


def test_modules_can_be_joined_because_no_two_share_a_name():
    names = [name for path in STATIC.glob("*.js") for name in NAMES.findall(path.read_text())]
    assert len(names) > 80
    assert sorted(names) == sorted(set(names))


def test_a_bundle_holds_every_module_after_what_it_needs():
    text = bundle()
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    names = NAMES.findall(text)
    assert names.index("curveOf") < names.index("seriesOf") < names.index("showCharts") < names.index("showPage")
    assert len(names) == sum(len(NAMES.findall(path.read_text())) for path in STATIC.glob("*.js"))


def test_the_page_asks_for_nothing_from_elsewhere():
    for name, content in static_files().items():
        addresses = re.findall(rb"https?://[^\s\"')]*", content)
        assert set(addresses) <= {b"http://www.w3.org/2000/svg"}, name


def test_data_cannot_end_the_script_that_holds_it():
    page = one_page('{"a": "</script><script>alert(1)</script><!--"}')
    assert page.count("</script>") == 2
    assert "alert(1)\\u003c/script>" in page
