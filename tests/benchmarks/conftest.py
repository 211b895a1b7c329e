"""A small load and its checkpoint, made once."""

import pytest

from benchmarks.walks import Load, make_checkpoint, open_checkpoint


@pytest.fixture(scope="session")
def load():
    return Load(groups=2, size=2, turns=3)


@pytest.fixture(scope="session")
def folder(tmp_path_factory, load):
    folder = tmp_path_factory.mktemp("tiny")
    make_checkpoint(folder, load)
    return folder


@pytest.fixture
def chat(folder):
    return open_checkpoint(folder)
