"""A robot's policy learns by PPO from shards what it learns whole, and hands over to any number of processes."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor

from lookact.algorithms.control_ppo import Learner, StepBatch, open_optimizer
from lookact.batch import ControlInputs
from lookact.errors import ConfigError
from lookact.recipes.vla_ppo import train
from lookact.recipes.vla_ppo.config import PRESETS
from lookact.recipes.vla_ppo.task import open_policy
from lookact.recipes.vla_ppo.train import ppo_update
from lookact.rollout.vector_rollout import Rollout
from lookact.training.distributed import fsdp_modules, rank, shard_control_policy, unsharded, world_size
from lookact.training.optim import NonFiniteGuard
from lookact.training.run import open_run
from lookact.training.settings import PPO

ROWS = 11
CFG = PRESETS["debug"]
ZEROS, NEVER = torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.bool)
EMPTY = Rollout(None, ZEROS, ZEROS, ZEROS, NEVER, NEVER, ZEROS, ~NEVER, ZEROS[0], ())
"""What a batch would be made from."""


def make_policy():
    policy = open_policy(CFG.model, CFG.env, seed=0)
    policy.freeze_encoders()
    return policy


def make_batch(policy):
    """Steps with random credit; a process has every other of them."""
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return torch.from_numpy(rng.normal(size=(ROWS, *shape)).astype(np.float32))

    spec, size = policy.spec, CFG.env.image_size
    frames = {c: torch.from_numpy(rng.integers(0, 256, (ROWS, size, size, 3), dtype=np.uint8)) for c in spec.cameras}
    texts = policy.tokenize(["put the red cube on the plate"] * ROWS)
    actions = drawn(spec.action_size)
    inputs = ControlInputs(actions, drawn(spec.state_size), frames, texts, drawn(spec.history, spec.action_size))
    batch = StepBatch(inputs, drawn(1) - 5.0, drawn(1), drawn(1), drawn(1), numbers=torch.arange(ROWS), total=ROWS)
    return batch[torch.arange(rank(), ROWS, world_size())]


def learned(kind, folder, total):
    """A run of `total` updates, each saved, that goes on with what is in the folder; processes act unequally long."""
    policy = make_policy()
    shard_control_policy(policy, kind, anchored=False)
    optimizer, guard = open_optimizer(policy, lr=1e-3, critic_lr=1e-3), NonFiniteGuard()
    batch, ppo = make_batch(policy), PPO(epochs=2, minibatch=4)
    parts = {"weights": {"model": policy}, "state": {"optimizer": optimizer, "guard": guard}}
    told = []
    with open_run(folder, {}, auto_resume=True, tensorboard=False) as run:
        run.restore(**parts)
        for step in run.steps(total):
            with unsharded(policy), torch.no_grad():
                outputs = [policy.actor(batch.inputs) for _ in range(1 + rank())]
                seen = sum(output.mean.sum() + policy.value(output.critic_features).sum() for output in outputs)
            with patch.object(train.control, "make_batch", lambda *args, **how: batch):
                metrics = ppo_update(Learner(policy, optimizer, guard, None, None, None), EMPTY, ppo, seed=step)
            told.append((metrics["optim/grad_norm"], metrics["loss/value"]))
            assert torch.isfinite(seen)
            run.save(step, **parts, metrics={})
    return told, len(fsdp_modules(policy)), sum(isinstance(p, DTensor) for p in policy.parameters())


def weights(folder, step):
    return load_file(folder / f"checkpoint-{step}/model.safetensors")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    return learned("data", folder, 3)[0], folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["data", "shard"])
def test_two_processes_learn_what_one_does_and_hand_over_to_it(one, together, tmp_path, kind):
    told, folder = one
    (two, blocks, parts), _ = together(learned, kind, tmp_path, 2)
    assert (blocks, parts > 20) == ((1, True) if kind == "shard" else (0, False))
    last, _, _ = learned("shard", tmp_path, 3)
    assert np.array(two + last) == pytest.approx(np.array(told), rel=1e-3, abs=1e-5)
    for step in (1, 2, 3):
        for name, tensor in weights(tmp_path, step).items():
            torch.testing.assert_close(tensor, weights(folder, step)[name], rtol=0, atol=2e-4)


@pytest.mark.slow
def test_one_process_hands_over_to_shards(one, together, tmp_path):
    told, folder = one
    learned("data", tmp_path, 1)
    (two, _, _), _ = together(learned, "shard", tmp_path, 3)
    assert np.array(two) == pytest.approx(np.array(told[1:]), rel=1e-3, abs=1e-5)
    for name, tensor in weights(tmp_path, 3).items():
        torch.testing.assert_close(tensor, weights(folder, 3)[name], rtol=0, atol=2e-4)


def test_an_anchor_and_shards_do_not_go_together():
    with pytest.raises(ConfigError, match="the anchor needs whole weights"):
        shard_control_policy(torch.nn.Linear(2, 2), "shard", anchored=True)
