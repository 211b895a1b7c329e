import torch

from lookact.batch import ControlInputs
from lookact.models.control_mlp import ControlMLP, MLPSpec


def inputs(rows=5, state=None):
    state = torch.randn(rows, 4, generator=torch.Generator().manual_seed(1)) if state is None else state
    nothing = torch.zeros(len(state), 0, dtype=torch.long)
    return ControlInputs(torch.ones(len(state), 2), state, {}, nothing, torch.zeros(len(state), 0, 2))


def policy(**spec):
    return ControlMLP(MLPSpec(4, 2, hidden=(8, 8), **spec), seed=3)


def test_what_was_sampled_scores_as_sampled():
    mlp, shown = policy(std=0.5), inputs()
    actions, logprobs, values = mlp.act(shown, generator=torch.Generator().manual_seed(0))
    scores = mlp.evaluate(ControlInputs(actions, shown.state, {}, shown.text_ids, shown.history))
    torch.testing.assert_close(scores.logprobs[:, 0], logprobs)
    torch.testing.assert_close(scores.values[:, 0], values)
    greedy, _, _ = mlp.act(shown, generator=None, greedy=True)
    torch.testing.assert_close(greedy, mlp(shown).mean[:, 0])
    assert not torch.equal(greedy, actions)


def test_a_fresh_policy_is_near_rest_and_seeded():
    shown = inputs()
    assert policy()(shown).mean.abs().max() < 0.1
    assert torch.equal(policy()(shown).mean, policy()(shown).mean)
    assert not torch.equal(policy()(shown).mean, ControlMLP(MLPSpec(4, 2, hidden=(8, 8)), seed=4)(shown).mean)


def test_states_are_seen_by_their_statistics():
    mlp, shown = policy(), inputs()
    mean, std = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([2.0, 1.0, 0.5, 4.0])
    before = mlp(shown).values
    mlp.set_statistics(mean, std)
    torch.testing.assert_close(mlp(inputs(state=shown.state * std + mean)).values, before)


def test_values_teach_the_critic_alone():
    mlp = policy()
    mlp(inputs()).values.sum().backward()
    moved = {name for name, parameter in mlp.named_parameters() if parameter.grad is not None}
    assert moved == {name for name, _ in mlp.named_parameters() if name.startswith("critic.")}
