import numpy as np
import pytest
import torch

from benchmarks import control_sac
from benchmarks.control_sac import Load, Nowhere
from lookact.models.sac import SAC

SMALL = Load(state_size=5, action_size=2, hidden=(16, 16), rows=32, capacity=100, steps=3, pairs=4, concurrency=4)


def test_both_sides_train_networks_of_one_size_as_often():
    pytest.importorskip("stable_baselines3", reason="needs lookact[bench]")
    ours, theirs = control_sac.gradient_steps(SMALL)(), control_sac.sb3_gradient_steps(SMALL)()
    assert ours == theirs


def test_with_equal_weights_both_sides_value_and_act_alike():
    stable = pytest.importorskip("stable_baselines3", reason="needs lookact[bench]")
    theirs = stable.SAC("MlpPolicy", Nowhere(SMALL), policy_kwargs={"net_arch": [16, 16]}, buffer_size=1, device="cpu")
    ours = SAC(5, 2, hidden=(16, 16), generator=torch.Generator().manual_seed(0))
    actor = theirs.actor
    last = torch.nn.Linear(16, 4)
    with torch.no_grad():
        last.weight.copy_(torch.cat([actor.mu.weight, actor.log_std.weight]))
        last.bias.copy_(torch.cat([actor.mu.bias, actor.log_std.bias]))
        copy_layers(ours.actor.network, [[*actor.latent_pi[::2], last]])
        copy_layers(ours.critics.network, [critic[::2] for critic in theirs.critic.q_networks])
    states = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32))
    with torch.no_grad():
        actions = ours.actor.act(states)
        q = ours.critics(states, actions)
        assert torch.allclose(actions, actor(states, deterministic=True), atol=1e-5)
        assert torch.allclose(q, torch.stack(theirs.critic(states, actions))[..., 0], atol=1e-5)


def copy_layers(network, members):
    """Each member's layers, as stable-baselines3 holds them, into an ensemble."""
    for member, layers in enumerate(members):
        for weight, bias, layer in zip(network.weights, network.biases, layers):
            weight[member], bias[member, :, 0] = layer.weight, layer.bias


@pytest.mark.slow
def test_asked_at_once_or_one_by_one_the_judge_says_the_same(tmp_path):
    control_sac.make_judge(tmp_path, SMALL)
    together, alone = (control_sac.labels(str(tmp_path), SMALL, each)() for each in (4, 1))
    assert together == alone
    assert together["done"] == 4
