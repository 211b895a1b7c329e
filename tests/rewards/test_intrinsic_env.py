"""The intrinsic reward, step by step, is what whole episodes are paid."""

import copy

import numpy as np
import pytest
import torch

from lookact.algorithms.world_model import sequence_rewards, tokenise
from lookact.data.sequences import Recording
from lookact.envs.testbeds.memory_curtain import MemoryCurtain
from lookact.errors import ConfigError, EnvError
from lookact.models.world_model.loading import build_world_model, open_tokenizer
from lookact.models.world_model.model import WorldModelSpec
from lookact.models.world_model.vq import VQSpec
from lookact.rewards.intrinsic import RewardScale
from lookact.rewards.intrinsic_env import IntrinsicReward, IntrinsicWeights

SPEC = WorldModelSpec(
    state_size=1, action_size=8, vq=VQSpec(16, 8, 4, (1, 2), 8), state_dim=4, action_dim=8, width=16, layers=1,
    heads=2, memory=6, members=2, chunk=2
)  # fmt: skip
STEPS = 7


@pytest.fixture(scope="module")
def world_model():
    tokenizer = open_tokenizer("tiny", ["remember what is behind the curtain"], None)
    model = build_world_model(SPEC, text="tiny", tokenizer=tokenizer, seed=0)
    model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    return model


def episode(world_model, **options):
    """Infos and rewards of random actions, and what was seen."""
    env = IntrinsicReward(MemoryCurtain(image_size=16), world_model, position=slice(0, 1), **options)
    shown, _ = env.reset(seed=3)
    rng, frames, taken = np.random.default_rng(0), [shown], []
    for _ in range(STEPS):
        action = rng.uniform(-1, 1, 8).astype(np.float32)
        shown, reward, _, _, info = env.step(action)
        frames.append(shown)
        taken.append((action, reward, info))
    views = {name: np.stack([one[name] for one in frames])[None] for name in ("wrist", "head", "state")}
    actions = np.stack([action for action, _, _ in taken])[None]
    texts, mask = np.array([frames[0]["instruction"]]), np.ones((1, STEPS), np.bool_)
    return Recording(views["wrist"], views["head"], views["state"], actions, texts, mask), taken


@pytest.mark.parametrize("kind", ["surprise", "entropy", "disagreement", "learning_progress"])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_step_is_paid_as_in_a_whole_episode(world_model, kind, stride):
    how = {"kind": kind, "stride": stride, "older": None}
    if kind == "learning_progress":
        how["older"] = copy.deepcopy(world_model)
        torch.nn.init.normal_(how["older"].memory_input.weight, generator=torch.Generator().manual_seed(1))
    recording, taken = episode(world_model, **how)
    sequences = tokenise(world_model, [recording])
    whole = sequence_rewards(world_model, sequences, sequences.state[:, 1:], **how)
    assert whole.uncertainty.abs().min() > 0
    paid = [info["intrinsic"] for _, _, info in taken]
    weights = IntrinsicWeights()
    for name, weight in (("divergence", weights.memory), ("uncertainty", weights.uncertainty)):
        found = torch.tensor([one[name] for one in paid])
        torch.testing.assert_close(found, weight * getattr(whole, name)[0].cpu(), rtol=1e-4, atol=1e-5)
    # of few positions the farthest counts, and at the last step all have been seen
    torch.testing.assert_close(
        torch.tensor(paid[-1]["novelty"]), weights.novelty * whole.novelty[0, -1].cpu(), rtol=1e-4, atol=1e-5
    )


def test_rewards_are_weighted_scaled_and_the_tasks_own_is_kept(world_model):
    scale = RewardScale()
    scale.uncertainty = 2.0
    weights = IntrinsicWeights(memory=0.0, uncertainty=3.0, novelty=0.0, task=10.0)
    (_, plain), (_, scaled) = episode(world_model), episode(world_model, weights=weights, scale=scale)
    for (_, _, one), (_, reward, other) in zip(plain, scaled):
        assert other["intrinsic"]["uncertainty"] == pytest.approx(1.5 * one["intrinsic"]["uncertainty"])
        assert reward == pytest.approx(sum(other["intrinsic"].values()) + 10 * other["task_reward"])


def test_learning_progress_without_an_older_model_is_refused(world_model):
    with pytest.raises(ConfigError, match="give older"):
        IntrinsicReward(MemoryCurtain(image_size=16), world_model, kind="learning_progress")


def test_a_step_before_the_first_reset_is_refused(world_model):
    env = IntrinsicReward(MemoryCurtain(image_size=16), world_model)
    env.env.reset(seed=0)
    with pytest.raises(EnvError, match="call reset before the first step"):
        env.step(np.zeros(8, np.float32))


def test_an_episode_begins_without_memory_of_the_last(world_model):
    env = IntrinsicReward(MemoryCurtain(image_size=16), world_model, position=slice(0, 1))
    first = []
    for _ in range(2):
        env.reset(seed=5)
        first.append(env.step(np.full(8, 0.5, np.float32))[4]["intrinsic"])
    assert first[0]["divergence"] == first[1]["divergence"]
    assert first[0]["uncertainty"] == first[1]["uncertainty"]
