"""Settings so small that a whole run takes seconds."""

import asyncio
import os
import signal
import threading
from dataclasses import replace

import pytest

from lookact.algorithms.vlm_settings import SFT, Model, VisionPretraining
from lookact.config import to_mapping
from lookact.data.jsonl import MANIFEST
from lookact.judges.client import wait_until_ready
from lookact.judges.server.app import create_app
from lookact.judges.server.batching import Reply
from lookact.recipes.ppo.config import PRESETS
from lookact.recipes.ppo.evaluate import open_policy
from lookact.recipes.rloo import train as nav_rloo
from lookact.recipes.rloo.config import SHORT_REPLIES, Config, Evaluation, Learn
from lookact.serving.limits import Limits
from lookact.serving.run import bind, make_server, run
from lookact.tasks.settings import NavigationConfig
from lookact.training.run import Run, open_run


@pytest.fixture(scope="session")
def vqa_config():
    debug = PRESETS["debug"]
    return replace(
        debug,
        model=Model(hidden=64, layers=1, vision_hidden=32, vision_depth=1),
        env=replace(debug.env, image_size=64, max_turns=3),
        vision_pretraining=replace(debug.vision_pretraining, rooms=2),
        sft=replace(debug.sft, demonstrations=8, batch_size=4),
        learn=replace(debug.learn, iterations=3, episodes=6, minibatch_size=3, max_kl=None),
        evaluation=replace(debug.evaluation, every=1, episodes=3, final_episodes=3),
    )


@pytest.fixture(scope="session")
def vqa_model(vqa_config, tmp_path_factory):
    """The folder of an untrained model, made once."""
    folder = tmp_path_factory.mktemp("vqa") / "model"
    open_policy(vqa_config, folder)
    return folder


@pytest.fixture
def train(tmp_path):
    """Runs a recipe's `main` in a folder of its own; `resume` goes on with what is there."""

    def run(main, cfg, name="run", *, resume=False):
        with open_run(tmp_path / name, to_mapping(cfg), auto_resume=resume, tensorboard=False) as run:
            return main(cfg, run)

    return run


@pytest.fixture(scope="session")
def killed_at():
    """Runs `work` in a fork that dies by SIGKILL as it is about to log a step: at no other moment, on any machine."""

    def run(step, work):
        child = os.fork()
        if child == 0:
            log = Run.log

            def deadly(run, metrics, number, **options):
                if number == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                log(run, metrics, number, **options)

            Run.log = deadly
            try:
                work()
            finally:
                os._exit(1)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL

    return run


@pytest.fixture(scope="session")
def kept_in():
    """What a run kept of each evaluation: its manifest, down to the last reward and reply."""

    def read(folder):
        return {path.parent.name: path.read_text() for path in (folder / "episodes").glob(f"*/{MANIFEST}")}

    return read


@pytest.fixture(scope="session")
def nav_config():
    """Rooms of a few steps with a bed or a sofa in them, and two short learning steps on the model as it is."""
    env = NavigationConfig(
        image_size=64,
        max_turns=3,
        objects=(1, 2),
        classes=("bed", "sofa"),
        side=(3.0, 4.0),
        start_distance=(0.5, 2.0),
        questions=("Find the {label}.",),
        progress_weight=0.5,
    )
    return Config(
        env=env,
        sampling=SHORT_REPLIES,
        vision_pretraining=VisionPretraining(rooms=0),
        sft=SFT(demonstrations=0),
        learn=Learn(iterations=2, groups=2, group_size=4, lr_warmup=0, lr_schedule="constant"),
        evaluation=Evaluation(every=1, episodes=2, final_episodes=0),
    )


@pytest.fixture(scope="session")
def nav_start(nav_config, tmp_path_factory):
    """The folder of a model that was shown 128 walks: most of its replies are moves, a quarter of its walks arrive."""
    cfg = replace(
        nav_config,
        vision_pretraining=VisionPretraining(rooms=40, epochs=4),
        sft=SFT(demonstrations=128, epochs=4, lr=2e-3),
        learn=replace(nav_config.learn, iterations=0),
    )
    folder = tmp_path_factory.mktemp("nav")
    with open_run(folder, to_mapping(cfg), tensorboard=False) as run:
        nav_rloo.main(cfg, run)
    return folder / "sft"


@pytest.fixture(scope="session")
def nav_started(nav_config, nav_start):
    """The same settings, from that model on."""
    return replace(nav_config, model=Model(source=str(nav_start)))


class BrightServer:
    """A real server over a stand-in for a model that sees which of two pictures is brighter.

    It ends itself in place of the answer to request number `last`.
    """

    def __init__(self, port=0, last=None):
        self.answered, self.last = 0, last
        bound = bind("127.0.0.1", port)
        self.port = bound.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        limits = Limits(batch=1, batch_wait=0.0)
        self.server = make_server(create_app(self.generate, model="bright", limits=limits), limits)
        self.thread = threading.Thread(target=asyncio.run, args=(run(self.server, bound, limits),), daemon=True)
        self.thread.start()
        wait_until_ready(self.url, seconds=60.0)

    def generate(self, prompts, dropped):
        for index, prompt in enumerate(prompts):
            if self.answered == self.last:
                self.server.should_exit = self.server.force_exit = True
                raise RuntimeError("the server was killed")
            light = [part.mean() for part in prompt.messages[0].parts if not isinstance(part, str)]
            self.answered += 1
            yield index, Reply(str(int(light[1] > light[0])), 1, 1)

    def stop(self):
        self.server.should_exit = True
        self.thread.join(60.0)


@pytest.fixture(scope="session")
def bright_server():
    """Starts servers that judge by brightness."""
    return BrightServer
