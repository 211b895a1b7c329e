import asyncio
import logging
import random
import sys
import threading

import pytest
from hypothesis import settings

# the same examples in every run, and no time limits: a busy machine is no failure
settings.register_profile("lookact", derandomize=True, deadline=None)
settings.load_profile("lookact")

pytest_plugins = ["flash_kernels", "qwen_vocabulary", "server_fixtures", "vlm_fixtures", "vsi_layout"]


LONGEST = (
    "recipes/test_combinations.py",
    "recipes/rloo/test_parallel.py",
    "recipes/pref_sac/test_learns.py",
    "recipes/rloo/test_resume.py",
    "judges/server/test_load.py",
)
"""Begun first, so that no worker is left alone with one of them at the end."""


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the files in an order drawn by SEED")


def pytest_collection_modifyitems(config, items):
    seed = config.getoption("--shuffle")
    files = list(dict.fromkeys(item.path for item in items))
    if seed is None:
        files.sort(key=lambda path: not path.as_posix().endswith(LONGEST))
    else:
        random.Random(seed).shuffle(files)
    places = {path: place for place, path in enumerate(files)}
    items.sort(key=lambda item: places[item.path])


def pytest_configure(config):
    config.addinivalue_line("markers", "interop: needs OpenEnv and verifiers; `make test-interop` has them")
    config.addinivalue_line("markers", "vllm: needs the real vLLM; `make test-vllm` has it, `make test` skips these")


@pytest.fixture(autouse=True)
def quiet_log():
    """Handlers that a test's command line leaves on the package's log go with the test."""
    log = logging.getLogger("lookact")
    before, level = list(log.handlers), log.level
    yield
    log.handlers[:] = before
    log.setLevel(level)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Scans that tests read are kept with the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOKACT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def own_modules(tmp_path_factory):
    """Modules that a test wrote and loaded go with it: another test may have a file of the same name."""
    before, places = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = places
    written = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(written):
            del sys.modules[name]


@pytest.fixture
def serve_app():
    """Serves ASGI applications from threads of this process; gives each one's address."""
    from lookact.serving.run import bind, make_server, run

    started = []

    def start(app, limits, **options):
        bound, server = bind("127.0.0.1", 0), make_server(app, limits, **options)
        thread = threading.Thread(target=asyncio.run, args=(run(server, bound, limits),), daemon=True)
        thread.start()
        started.append((server, thread))
        return f"http://127.0.0.1:{bound.getsockname()[1]}"

    yield start
    for server, thread in started:
        server.should_exit = True
        thread.join(60.0)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A fresh tiny chat model that spells moves in a few tokens; some folders of tests make their own."""
    from lookact.models.vlm.tiny import TinySpec, make_tiny

    moves = [
        f'I see it. {{"rotation_angle_degrees": {angle}, "forward_meters": {step}}}'
        for angle in range(-180, 181, 15)
        for step in (0.0, 0.25, 0.5, 1.0)
    ]
    spec = TinySpec(hidden=64, vision_hidden=32, vocabulary=400)
    return make_tiny(tmp_path_factory.mktemp("tiny"), corpus=[*moves, "Find the bed. Turn 1 of 3."], spec=spec)


@pytest.fixture
def together(tmp_path):
    """Runs a function in forked processes that train together; returns what each of them returned, by rank."""
    import multiprocessing
    import os
    import pickle
    import socket

    def one(rank, processes, port, work, arguments):
        from lookact.training.distributed import close_distributed, init_distributed

        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        init_distributed()
        (tmp_path / f"returned-{rank}").write_bytes(pickle.dumps(work(*arguments)))
        close_distributed()

    def run(work, *arguments, processes=2):
        fork = multiprocessing.get_context("fork")
        with socket.socket() as held:
            # held until the end, so that nobody else is given it
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
            running = [fork.Process(target=one, args=(r, processes, port, work, arguments)) for r in range(processes)]
            for process in running:
                process.start()
            for process in running:
                process.join()
        assert [process.exitcode for process in running] == [0] * processes
        return [pickle.loads((tmp_path / f"returned-{rank}").read_bytes()) for rank in range(processes)]

    return run


@pytest.fixture
def chat(tiny_folder):
    from lookact.models.vlm.loading import load_chat

    return load_chat(tiny_folder)
