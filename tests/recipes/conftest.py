"""Settings so small that a whole run takes seconds."""

from dataclasses import replace

import pytest

from lookact.recipes.chat_model import Model
from lookact.recipes.vqa_ppo import PRESETS
from lookact.recipes.vqa_runs import open_policy
from lookact.train.config import to_mapping
from lookact.train.run import open_run


@pytest.fixture(scope="session")
def vqa_config():
    debug = PRESETS["debug"]
    return replace(
        debug,
        model=Model(hidden=64, layers=1, vision_hidden=32, vision_depth=1),
        world=replace(debug.world, image_size=64, max_turns=3),
        warm_start=replace(debug.warm_start, look_rooms=2, demos=8, rows=4),
        learn=replace(debug.learn, updates=3, episodes=6, minibatch=3, max_kl=None),
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
