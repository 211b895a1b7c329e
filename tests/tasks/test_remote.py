"""A task on a server is the task in this process: starts, episodes, demonstrations, texts, pictures and reports."""

import os
import pickle
import re
import signal
import subprocess
import sys

import pytest

from lookact.envs.remote.codec import encode
from lookact.errors import ConfigError
from lookact.rollout.collect import collect
from lookact.tasks.registry import find_task, make_task

SMALL = {
    "navigation": {"image_size": 32, "max_turns": 3},
    "spatial-vqa": {"image_size": 32},
    "frozen-lake": {"size": 3},
}


@pytest.fixture
def serve_named(serve_app):
    """Serves a task by its name from a thread of this process; gives the task here and the one there."""
    from lookact.envs.remote.app import LIMITS, create_app

    def start(name, seed=0, **settings):
        cls = find_task(name)
        env = cls(**settings)
        app = create_app(lambda seed: make_task(env, seed), name=name, presets=getattr(cls, "presets", {}))
        return make_task(env, seed), serve_app(app, LIMITS)

    return start


def played(task, specs, num_envs=3):
    envs = [task.make_env() for _ in range(num_envs)]
    episodes = collect(specs, envs, task.random_actor())
    for env in envs:
        env.close()
    return episodes


@pytest.mark.parametrize("name", SMALL)
def test_everything_of_a_task_is_the_same_over_the_wire(serve_named, name):
    here, url = serve_named(name, seed=3, **SMALL[name])
    there = make_task(find_task(url)(), 3)
    there = pickle.loads(pickle.dumps(there))
    assert (there.image_size, there.best, dict(there.outcome)) == (here.image_size, here.best, dict(here.outcome))
    specs = here.specs(1, "validate", groups=4)
    assert there.specs(1, "validate", groups=4) == specs
    mine, theirs = played(here, specs), played(there, specs)
    assert all(episode.error is None and episode.turns for episode in mine)
    assert encode(theirs) == encode(mine)
    report = here.report(mine)
    assert there.report(theirs) == report
    assert there.report_metrics(report) == here.report_metrics(report)
    both = {"greedy": report, "sampled": report}
    assert there.compare(both, both) == here.compare(both, both)
    assert encode(there.histograms(theirs)) == encode(here.histograms(mine))
    demos = here.demonstrations(specs, noise=0.3)
    assert encode(list(there.demonstrations(specs, noise=0.3))) == encode(list(demos))
    images = here.pretraining_images(2, rooms=range(9), per_room=1)
    found = list(there.pretraining_images(2, rooms=range(9), per_room=1))
    assert [encode(vars(image)) for image in found] == [encode(vars(image)) for image in images]
    mapped = [task.add_floor_map(specs)(mine[0]) for task in (here, there)]
    assert encode(mapped[1].floor_map) == encode(mapped[0].floor_map)


def test_texts_and_presets_come_from_the_server(serve_named):
    here, url = serve_named("frozen-lake", size=3, max_turns=2)
    settings = find_task(url)
    assert settings.presets == find_task("frozen-lake").presets
    assert settings().image_size == here.image_size
    assert make_task(settings(), 0).corpus() == here.corpus()


def test_the_random_baseline_is_drawn_on_as_long_as_an_episode_lasts(serve_named):
    from lookact.tasks.remote import RemoteRandomActor

    here, url = serve_named("frozen-lake")
    there = RemoteRandomActor(make_task(find_task(url)(), 0), ahead=2)
    actors = [here.random_actor(), there]
    for actor in actors:
        actor.begin(0, 7)
    said = [[actor.act([0], [None])[0].action for _ in range(9)] for actor in actors]
    assert said[0] == said[1]


def test_a_server_that_is_none_is_told_in_one_line(free_port, serve_here, monkeypatch):
    import lookact.tasks.remote_settings as remote_settings

    patient = remote_settings.ServerSpec
    monkeypatch.setattr(remote_settings, "ServerSpec", lambda urls: patient(urls, retry_s=0.0))
    with pytest.raises(ConfigError, match=r"no answer from .*: start a server with lookact env-server"):
        find_task(f"http://127.0.0.1:{free_port}")
    with pytest.raises(ConfigError, match="404, Not Found: is it a lookact env-server"):
        find_task(serve_here())


def test_a_wrong_token_another_task_and_another_version_are_told(serve_app, monkeypatch):
    from lookact.envs.remote.app import LIMITS, create_app

    def served(name, **options):
        env = find_task(name)()
        return serve_app(create_app(lambda seed: make_task(env, seed), name=name, **options), LIMITS)

    lake, rooms = served("frozen-lake"), served("navigation")
    with pytest.raises(ConfigError, match="do not serve the same task"):
        find_task(f"{lake}, {rooms}")
    locked = served("frozen-lake", token="s3cret")
    with pytest.raises(ConfigError, match=r"401.*set ENV_SERVER_TOKEN"):
        find_task(f"{locked}/")
    monkeypatch.setenv("ENV_SERVER_TOKEN", "s3cret")
    assert find_task(locked).facts["task"] == "frozen-lake"
    monkeypatch.setattr("lookact.envs.remote.client.PROTOCOL", 2)
    with pytest.raises(ConfigError, match="speaks protocol 1, this is 2: install the same version"):
        find_task(f"{lake}//")


class Restarted:
    """A server in a process of its own that is killed before an actor's turn, and started again on its port."""

    version = 0

    def __init__(self, actor, server, turn):
        self.actor, self.server, self.turns_left = actor, server, turn
        self.begin, self.end = actor.begin, actor.end

    def act(self, rows, observations):
        self.turns_left -= 1
        if self.turns_left == 0:
            self.server.kill_and_start()
        return self.actor.act(rows, observations)


class Server:
    def __init__(self):
        self.port, self.process = 0, None
        self.start()

    def start(self):
        command = [sys.executable, "-m", "lookact", "env-server", "--task", "frozen-lake", "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)", self.process.stdout.readline())[1])

    def kill_and_start(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        self.start()


@pytest.mark.slow
def test_a_server_that_is_killed_and_started_again_costs_no_episode():
    here = make_task(find_task("frozen-lake")(), 0)
    specs = here.specs(0, "train", groups=3, group_size=2)
    server = Server()
    try:
        there = make_task(find_task(f"http://127.0.0.1:{server.port}")(), 0)
        envs = [there.make_env() for _ in range(3)]
        actor = Restarted(here.random_actor(), server, turn=4)
        episodes = collect(specs, envs, actor)
    finally:
        server.process.terminate()
        assert server.process.wait(60) == 0
    assert actor.turns_left < 0
    assert encode(episodes) == encode(played(here, specs))
