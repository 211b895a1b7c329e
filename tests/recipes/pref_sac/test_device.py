"""Whole runs on another device than the CPU: all that learns is there, and nothing is mixed."""

from dataclasses import replace

import pytest
import torch

from lookact.algorithms.reward_learning import state_entropy_rewards
from lookact.models.reward_model import make_reward_model
from lookact.models.sac import SAC
from lookact.recipes.pref_sac import train as pref_sac
from lookact.recipes.pref_sac.config import PRESETS, EnvConfig
from tests.helpers.pretend_device import DEVICE, pretend_device

# torch does not expect numbers on this device
pytestmark = pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter:UserWarning")
LEARNING = {
    "SAC and the reward": "baddbmm",
    "their gradients": "bmm",
    "SAC's optimisers": "_fused_adam_",
    "the reward's optimiser": "_fused_adamw_",
    "target critics": "lerp_",
    "distances of k-NN exploration": "_euclidean_dist",
    "and its neighbours": "topk",
}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["disagreement", "k_centre"])
@pytest.mark.parametrize("inputs", ["state", "frame"])
def test_a_run_learns_on_its_device_and_comes_to_the_same_numbers(train, inputs, strategy):
    debug = PRESETS["debug"]
    cfg = replace(
        debug,
        env=EnvConfig(horizon=10, image_size=48),
        judge=replace(debug.judge, kind="oracle"),
        feedback=replace(debug.feedback, total=14, strategy=strategy),
        reward_model=replace(debug.reward_model, inputs=inputs),
        learn=replace(debug.learn, entropy_bonus=0.3, layer_norm=True),
    )
    on_cpu = train(pref_sac.main, cfg, "cpu")
    with pretend_device() as ops:
        on_device = train(pref_sac.main, replace(cfg, device=DEVICE), "device")
    assert on_device == on_cpu
    learning = set(LEARNING.values()) | ({"convolution", "convolution_backward"} if inputs == "frame" else set())
    assert learning - set(ops.on_device) == set()
    assert learning & set(ops.on_cpu) == set()


def test_what_was_left_on_the_cpu_is_found():
    with pretend_device():
        states = torch.zeros(4, 3)
        sac = SAC(3, 2, hidden=(8,), generator=torch.Generator()).to(DEVICE)
        reward = make_reward_model((3,), members=2, hidden=(8,), generator=torch.Generator()).to(DEVICE)
        for mixed in (
            lambda: sac.act(states),
            lambda: sac.critics(states.to(DEVICE), torch.zeros(4, 2)),
            lambda: reward(states),
            lambda: state_entropy_rewards(states.to(DEVICE), torch.randn(9, 3)),
        ):
            with pytest.raises(RuntimeError, match="two devices"):
                mixed()
        assert sac.act(states.to(DEVICE)).device.type == reward(states.to(DEVICE)).device.type == DEVICE
