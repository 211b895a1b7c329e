"""The demo from the outside, its pictures while something else trains, and the whole of it at debug size."""

import json
import re
import shlex
import subprocess
import sys
import time

import numpy as np
import pytest

from lookact.cli import demo, main, recipes
from lookact.cli.demo_pictures import STORES, Pictures
from lookact.cli.recipes import RECIPES as REAL_RECIPES
from lookact.data.episode_store import EpisodeStore
from lookact.errors import LookActError
from lookact.types import Decision, Episode, FloorMap, Observation, Turn


@pytest.fixture(autouse=True)
def real_recipes(monkeypatch, toy):
    monkeypatch.setattr(recipes, "RECIPES", REAL_RECIPES)


def episode(name: str) -> Episode:
    seen = Observation("Find the bed.", {"head": np.full((8, 8, 3), 90, np.uint8)}, state=np.array([1, 2, 0, 1], "f4"))
    nothing = np.zeros(0, np.float32)
    turn = Turn(seen, Decision("hm", nothing, nothing > 0), 0.0, False, False, {"success": False, "question": "Where?"})
    room = FloorMap(np.full((60, 60, 3), 200, np.uint8), (1.0, 2.0), 10.0)
    return Episode(name, 0, 0, (turn,), last=seen, floor_map=room)


def test_pictures_are_drawn_when_there_is_something_new(tmp_path):
    told = []
    pictures = Pictures(tmp_path, iterations=4, random_rate=0.05, tell=told.append)
    pictures.refresh()
    assert told == []

    EpisodeStore(tmp_path / STORES["random"]).add(episode("a"))
    pictures.refresh()
    pictures.refresh()
    plots = tmp_path / "plots"
    assert pictures.paths == [plots / "episodes-random.png", plots / "paths.png"]
    assert told == [f"drew {path}" for path in pictures.paths]

    metrics, curve = tmp_path / "metrics.jsonl", plots / "learning-curve.png"
    metrics.write_text('{"step": 1, "rollout/success_rate": 0.25}\n')
    pictures.refresh()
    first = curve.read_bytes()
    with metrics.open("a") as file:
        file.write('{"step": 2, "rollout/success_rate": 0.75}\n')
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft/metrics.json").write_text('{"reports": {"sampled": {"success_rate": 0.4}}}')
    pictures.refresh()
    assert curve.read_bytes() != first
    # told once, however often it is redrawn; and nothing half drawn is left behind
    assert len(told) == 3
    assert sorted(path.name for path in plots.iterdir()) == sorted(path.name for path in pictures.paths)


def test_pictures_are_drawn_while_something_else_works(tmp_path, monkeypatch):
    monkeypatch.setattr("lookact.cli.demo_pictures.SECONDS", 0.01)
    drawn = []
    with Pictures(tmp_path, iterations=4, random_rate=0.05, tell=drawn.append) as pictures:
        # a line that is not whole yet spoils nothing
        (tmp_path / "metrics.jsonl").write_text("{")
        EpisodeStore(tmp_path / STORES["random"]).add(episode("a"))
        deadline = time.monotonic() + 60
        while len(drawn) < 2 and pictures._thread.is_alive() and time.monotonic() < deadline:
            pictures._over.wait(0.01)
    assert len(drawn) == 2


def test_episodes_that_were_half_written_are_drawn_at_the_next_look(tmp_path):
    pictures = Pictures(tmp_path, iterations=4, random_rate=0.05, tell=lambda _: None)
    store = tmp_path / STORES["random"]
    store.mkdir(parents=True)
    with pytest.raises((LookActError, OSError)):
        pictures.refresh()
    EpisodeStore(store).add(episode("a"))
    pictures.refresh()
    assert [path.name for path in pictures.paths] == ["episodes-random.png", "paths.png"]


def test_the_demo_hands_one_folder_to_every_process_and_tells_all_as_json(monkeypatch, capsys):
    launched = []

    def train_together(recipe, cfg, folder, *, processes, words, origin):
        launched.append((cfg, folder, processes, words))
        return {"before": {}, "after": {}, "seconds": {}}

    monkeypatch.setattr(demo, "measure_random", lambda *_: {"success_rate": 0.05})
    monkeypatch.setattr(demo, "train_together", train_together)
    assert main(["--debug", "demo", "--processes", "3", "--seed", "2", "--json"]) == 0
    ((cfg, folder, processes, words),) = launched
    assert (cfg.seed, cfg.learn.iterations, processes) == (2, 50, 3)
    assert words[:4] == ["train", "nav-rloo", "--preset", "small"]
    assert {"--learn.iterations=50", "--seed=2", "--debug"} <= set(words)
    assert folder.name == words[words.index("--name") + 1]
    result = json.loads(capsys.readouterr().out)
    assert (result["folder"], result["random"]) == (str(folder), {"sampled": {"success_rate": 0.05}})


@pytest.mark.parametrize(
    "words",
    [("--watch", "--preset", "debug"), ("--watch", "--processes", "2"), ("--episodes", "3"), ("--open",)],
    ids=" ".join,
)
def test_training_and_watching_do_not_mix(capsys, words):
    assert main(["demo", *words]) == 2
    assert "--watch" in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_demo_in_two_processes_and_what_it_advises(tmp_path, capsys):
    command = [sys.executable, "-m", "lookact", "demo", "--preset", "debug", "--processes", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # what comes is said first, the table last
    assert done.stdout.startswith("A vision-language model of 0.7 M parameters")
    table, _, rest = done.stdout.partition("95% intervals")
    assert re.search(r"random +warm start +after RL", table)
    pictures = re.findall(r"^   (\S+\.png)$", rest, re.MULTILINE)
    assert len(pictures) == 5
    for picture in pictures:
        assert (tmp_path / picture).stat().st_size > 1000

    watch, view, train = (
        shlex.split(line, comments=True) for line in re.findall(r"^   (.* -m lookact .*)$", rest, re.M)
    )
    capsys.readouterr()
    assert main(watch[3:]) == 0
    assert "room 4 of 4" in capsys.readouterr().out
    assert main([*view[3:], "--out", "page.html"]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "episodes/after-greedy" in page
    assert "random/episodes" in page
    assert train[3:] == ["train", "nav-rloo", "--preset", "debug", "--processes", "2", "--name", "whole"]
