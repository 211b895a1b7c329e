"""Learning for real, small: what is foreseen of episodes never seen beats copying and the commonest token."""

from dataclasses import replace

import pytest

from lookact.recipes.world_data import World
from lookact.recipes.world_duel import PRESETS, Evaluation, Teacher, main
from lookact.recipes.world_model import Model, Tokens

CONFIG = replace(
    PRESETS["debug"],
    phase="teacher",
    world=World(
        image_size=16, rows=16, steps_per_episode=24, distractors=0, background=False, light=False, clutter=False
    ),
    model=Model(width=32, layers=1, memory=32, members=1),
    tokens=Tokens(codes=32, latent=8, width=16, scales=(1, 2), steps=150, batch=64),
    teacher=Teacher(episodes=48, steps=40, batch=16, lr=4e-3, warmup=5),
    evaluation=Evaluation(times=1, episodes=16, ahead=4, starts=2),
)


@pytest.mark.slow
def test_a_world_model_foresees_more_than_copying_does(train):
    report = train(main, CONFIG)["teacher"]
    assert report["token_accuracy"] > report["copy_accuracy"] + 0.05
    assert report["token_accuracy"] > report["frequent_accuracy"] + 0.05
    # tokens this coarse can be half a decibel better at most
    assert report["psnr"] > report["copy_psnr"] + 0.2
    assert report["ahead"]["psnr"] > report["ahead"]["copy_psnr"] + 0.5
