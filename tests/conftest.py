import logging

import pytest
from hypothesis import settings

# the same examples in every run, and no time limits: a busy machine is no failure
settings.register_profile("lookact", derandomize=True, deadline=None)
settings.load_profile("lookact")


@pytest.fixture(autouse=True)
def quiet_log():
    """Handlers that a test's command line leaves on the package's log go with the test."""
    log = logging.getLogger("lookact")
    before, level = list(log.handlers), log.level
    yield
    log.handlers[:] = before
    log.setLevel(level)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A fresh tiny chat model that spells moves in a few tokens; some folders of tests make their own."""
    from lookact.models.tiny import TinySpec, make_tiny

    moves = [
        f'I see it. {{"rotation_angle_degrees": {angle}, "forward_meters": {step}}}'
        for angle in range(-180, 181, 15)
        for step in (0.0, 0.25, 0.5, 1.0)
    ]
    spec = TinySpec(hidden=64, vision_hidden=32, vocabulary=400)
    return make_tiny(tmp_path_factory.mktemp("tiny"), corpus=[*moves, "Find the bed. Turn 1 of 3."], spec=spec)


@pytest.fixture
def chat(tiny_folder):
    from lookact.models.loading import load_chat

    return load_chat(tiny_folder)
