import torch
from torch.distributions import Independent, Normal

from lookact.models.actor_critic import ActorCriticOutput, draw, score

MEAN = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))
LOG_STD = torch.tensor([0.1, -0.3, -1.0])
OUTLOOK = ActorCriticOutput(MEAN, LOG_STD, torch.arange(5.0), None)
NORMAL = Independent(Normal(MEAN[:, 0], LOG_STD.exp()), 1)


def test_what_was_drawn_scores_as_drawn():
    actions, logprobs, values = draw(OUTLOOK, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(logprobs, NORMAL.log_prob(actions))
    scores = score(OUTLOOK, actions)
    assert torch.equal(scores.logprobs[:, 0], logprobs)
    assert torch.equal(scores.values[:, 0], values)
    torch.testing.assert_close(scores.entropy[:, 0], NORMAL.entropy())


def test_the_greedy_action_is_the_first_of_the_chunk():
    actions, _, _ = draw(OUTLOOK, generator=None, greedy=True)
    assert torch.equal(actions, MEAN[:, 0])
    assert not torch.equal(draw(OUTLOOK, generator=torch.Generator().manual_seed(1))[0], actions)
