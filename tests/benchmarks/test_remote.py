import pytest

from benchmarks.remote import in_process, on_server
from benchmarks.timing import CPU, WALL


@pytest.mark.slow
def test_both_sides_do_the_same_work(folder, load):
    def done(work):
        return {name: value for name, value in work().items() if name not in (CPU, WALL, "rollout_cpu_seconds")}

    here = done(in_process(folder, load))
    assert here == done(on_server(folder, load))
    assert here["turns"] > 0
