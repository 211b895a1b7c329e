"""A small control policy for tests: it is told the state, and sees, reads and remembers nothing."""

from types import SimpleNamespace

import torch
from torch import nn

from lookact.batch import ActorOutput
from lookact.models.actor_critic import sample_gaussian


class StatePolicy(nn.Module):
    """A Gaussian actor and a critic on state (b, s), each a perceptron of its own."""

    frozen_vision = False
    device = torch.device("cpu")

    def __init__(self, state_size, action_size, *, hidden=8, std=1.0, seed=0):
        super().__init__()
        sizes = {"state_size": state_size, "action_size": action_size, "sample_size": action_size}
        self.spec = SimpleNamespace(**sizes, history=0, cameras=())
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.actor_net = nn.Sequential(nn.Linear(state_size, hidden), nn.Tanh(), nn.Linear(hidden, action_size))
            self.critic = nn.Sequential(nn.Linear(state_size, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        with torch.no_grad():
            # a fresh policy is near rest
            self.actor_net[2].weight.mul_(0.1)
        self.log_std = nn.Parameter(torch.full((action_size,), std).log())
        self.register_buffer("state_mean", torch.zeros(state_size))
        self.register_buffer("state_std", torch.ones(state_size))

    def set_statistics(self, mean, std):
        self.state_mean.copy_(mean)
        self.state_std.copy_(std.clamp_min(1e-3))

    def set_progress(self, share):
        pass

    def features(self, images, text_ids):
        return {}

    def tokenize(self, texts):
        return torch.zeros(len(texts), 0, dtype=torch.long)

    def start_carry(self, rows):
        return None

    def forward(self, inputs):
        output = self.actor(inputs)
        return output.with_values(self.value(output.critic_features))

    def actor(self, inputs):
        state = (inputs.state - self.state_mean) / self.state_std
        return ActorOutput(self.actor_net(state).unsqueeze(1), self.log_std, state, None)

    def sample(self, inputs, noise):
        return sample_gaussian(self, inputs, noise)

    def executed(self, actions):
        return actions

    def normalise_actions(self, actions):
        return actions

    def value(self, critic_features):
        return self.critic(critic_features).squeeze(-1)
