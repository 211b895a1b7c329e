from dataclasses import replace

import pytest
import torch

from lookact.models.world_model.explorer import Explorer
from lookact.recipes.world_duel.config import PRESETS, World
from lookact.recipes.world_duel.data import make_worlds
from lookact.recipes.world_duel.frozen_explorer import FrozenExplorer
from lookact.recipes.world_duel.model import open_world
from lookact.recipes.world_duel.student import explore

CONFIG = replace(PRESETS["debug"], world=World(env="hidden", rows=2, steps_per_episode=5))


def test_a_rival_stays_as_it_was_met_while_the_world_model_learns():
    world = open_world(CONFIG)
    world.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    explorer, worlds = Explorer(world, stride=1), make_worlds(CONFIG.world)
    found, random = (explore(explorer, worlds, CONFIG, split, 0).sequences for split in ("explore", "other"))
    rival = FrozenExplorer()
    rival.meet(world, found, random, stride=1)
    first = rival.report(world, random, stride=1)
    assert first["rival_error"] == first["rival_error_before"] > 0
    assert first["random_error"] == first["random_error_before"] > 0
    with torch.no_grad():
        world.foresight.heads.biases[0].add_(0.1)
    again = FrozenExplorer()
    again.load_state_dict(rival.state_dict())
    later = again.report(world, random, stride=1)
    assert later["rival_error_before"] == first["rival_error_before"]
    assert later["rival_error"] != first["rival_error"]
    for name in ("rival", "random"):
        change = later[f"{name}_error"] - later[f"{name}_error_before"]
        assert later[f"{name}_error_change"] == pytest.approx(change)
        low, high = later["ci"][f"{name}_error_change"]
        assert low <= change <= high
