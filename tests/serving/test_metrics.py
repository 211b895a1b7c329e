import re

from lookact.serving.metrics import SHARED, Metrics

LINE = re.compile(r'lookact_[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [-+0-9.e]+')


def test_the_page_is_in_the_text_format():
    own = {"rows_total": ("counter", "rows"), "waiting": ("gauge", "who waits")}
    metrics = Metrics(own)
    metrics.request("/generate", 200, 0.3)
    metrics.request("/generate", 200, 9.0)
    metrics.request("other", 404, 0.01)
    metrics.add("rows_total", 4)
    lines = metrics.render(waiting=3).splitlines()
    values = [line for line in lines if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in values)
    assert 'lookact_requests_total{path="/generate",status="200"} 2' in values
    assert 'lookact_request_seconds_bucket{le="0.5"} 2' in values
    assert 'lookact_request_seconds_bucket{le="+Inf"} 3' in values
    assert "lookact_request_seconds_count 3" in values
    assert "lookact_rows_total 4" in values
    assert "lookact_waiting 3" in values
    assert sum(line.startswith("# TYPE") for line in lines) == len(SHARED) + len(own)
