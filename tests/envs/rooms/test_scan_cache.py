import dataclasses
import os

import numpy as np
import pytest

from lookact.envs.rooms import scan_cache
from lookact.envs.rooms.arkit import load_scene, save_scene
from lookact.envs.rooms.generate import generate_room
from lookact.envs.rooms.scan_cache import cache_file, keep_scans, open_scan
from lookact.envs.rooms.simulator import recorded_simulator
from lookact.envs.rooms.space import free_space


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOKACT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    save_scene(generate_room(3), tmp_path / "41")
    return tmp_path / "41"


def refuse(folder):
    raise AssertionError("the scan was read again")


def equal(one, two):
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and np.array_equal(one, two)
    if dataclasses.is_dataclass(one):
        return all(equal(getattr(one, f.name), getattr(two, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, tuple):
        return len(one) == len(two) and all(map(equal, one, two))
    return one == two


def test_a_scan_is_read_once_and_comes_back_to_the_last_bit(folder, monkeypatch):
    first = open_scan(folder)
    monkeypatch.setattr(scan_cache, "load_scene", refuse)
    again = open_scan(str(folder))
    scene = load_scene(folder)
    assert equal(again, first)
    assert equal(again, (scene, free_space(scene)))
    # environments take it from there
    assert equal(recorded_simulator(str(folder)).scene, scene)


def test_a_scan_that_changed_or_a_torn_file_is_read_anew(folder):
    open_scan(folder)
    kept = cache_file(folder)
    kept.write_bytes(kept.read_bytes()[:1000])
    assert equal(open_scan(folder)[0], load_scene(folder))
    (mesh,) = folder.glob("*_3dod_mesh.ply")
    os.utime(mesh, (0, 0))
    assert cache_file(folder) != kept


def test_a_cache_that_can_not_be_written_costs_time_alone(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOOKACT_CACHE", str(tmp_path / "file"))
    assert equal(open_scan(folder)[0], load_scene(folder))


@pytest.mark.slow
def test_many_scans_are_read_by_worker_processes(folder, tmp_path, monkeypatch):
    folders = [str(tmp_path / f"room{number}") for number in range(scan_cache.MANY)]
    for number, path in enumerate(folders):
        save_scene(generate_room(number), path)
    monkeypatch.setattr(scan_cache, "load_scene", refuse)
    keep_scans(folders, workers=2)
    assert [open_scan(path)[0].id for path in folders] == [generate_room(n).id for n in range(scan_cache.MANY)]
