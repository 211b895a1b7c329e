import psutil
import pytest

from benchmarks.remote import in_process, on_server
from benchmarks.timing import CPU, WALL


@pytest.fixture
def _no_server_left():
    """A worker of pytest's ends without the exit handlers by which the bench stops its server."""
    yield
    for child in psutil.Process().children():
        if "env-server" in child.cmdline():
            child.kill()
            child.wait(60)


@pytest.mark.slow
@pytest.mark.usefixtures("_no_server_left")
def test_both_sides_do_the_same_work(folder, load):
    def done(work):
        return {name: value for name, value in work().items() if name not in (CPU, WALL, "rollout_cpu_seconds")}

    here = done(in_process(folder, load))
    assert here == done(on_server(folder, load))
    assert here["turns"] > 0
