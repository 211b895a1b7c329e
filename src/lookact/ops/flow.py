"""Flow matching (arXiv:2210.02747), and denoising chains whose log-probability is exact.

Time runs from 1, pure noise, to 0, the action (arXiv:2410.24164): x_t = t·noise + (1 − t)·a, and the velocity to be
learned is noise − a. K Euler steps of length 1/K lead from noise to an action; they are deterministic, so that the
action's density would take the trace of a Jacobian. Where each step is a Gaussian instead, the density of the whole
chain x_0 … x_K is a product of K + 1 Gaussians, the first of which is the prior N(0, I). PPO's ratio needs no more:

- Flow-Noise (ReinFlow, arXiv:2505.22094): the Euler step is the mean, and a learned network gives the deviation.
- Flow-SDE (Flow-GRPO, arXiv:2505.05470): the mean is corrected by the score, so that every x_t is distributed as
  without the noise.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""x (b, n) and its time (b,) -> mean and log standard deviation (b, n) of the next x."""


def sample_flow_times(count: int, generator: torch.Generator) -> Tensor:
    """Times (count,) of the flow: Beta(1.5, 1)·0.999 + 0.001, by the inverse of its distribution, u^(1/1.5)."""
    return torch.rand(count, generator=generator).pow(1 / 1.5) * 0.999 + 0.001


def interpolate(actions: Tensor, noise: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """x_t between actions and noise (b, ...) at time (b,), and the velocity that leads from the one to the other."""
    share = time.view(-1, *(1,) * (actions.dim() - 1))
    return share * noise + (1 - share) * actions, noise - actions


def chain_times(steps: int, device: torch.device | str = "cpu") -> Tensor:
    """Times (steps,) at which Euler steps begin: 1 down to 1/steps."""
    return 1.0 - torch.arange(steps, device=device) / steps


def euler_step(x: Tensor, velocity: Tensor, *, steps: int) -> Tensor:
    """x (b, n) after one of so many steps from time 1 to 0."""
    return x - velocity / steps


def sde_step(x: Tensor, velocity: Tensor, time: Tensor, level: Tensor, *, steps: int) -> tuple[Tensor, Tensor]:
    """Mean and log standard deviation (b, n) of the Euler–Maruyama step of Flow-GRPO's SDE (its eq. 9).

    The diffusion is level·√(t / (1 − t)), bounded at time 1; `level` (n,) or (b, n) above 0. With the true velocity the
    score of x_t is −(x + (1 − t)·velocity) / t.
    """
    t = time.unsqueeze(-1)
    variance = level.square() * t / (1 - t).clamp_min(1 / steps)
    mean = euler_step(x, velocity, steps=steps) - variance / (2 * t) * (x + (1 - t) * velocity) / steps
    return mean, 0.5 * (variance / steps).log().expand_as(mean)


def sample_chain(step: Step, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A chain of standard normal noise (b, K + 1, n), with the mean and log-std of each of its parts, of that shape.

    The first part is the noise itself, the last the action; noise of zeros takes the mean at every step.
    """
    x, nothing = noise[:, 0], torch.zeros_like(noise[:, 0])
    chain, means, log_stds = [x], [nothing], [nothing]
    for number, time in enumerate(chain_times(noise.shape[1] - 1, noise.device), start=1):
        mean, log_std = step(x, time.expand(len(x)))
        x = mean + log_std.exp() * noise[:, number]
        for kept, part in ((chain, x), (means, mean), (log_stds, log_std)):
            kept.append(part)
    return torch.stack(chain, dim=1), torch.stack(means, dim=1), torch.stack(log_stds, dim=1)


def score_chain(step: Step, chain: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log-std (b, K + 1, n) of each part of a stored chain given the one before, all steps in one pass.

    `ops.logprobs` takes the log-prob, entropy and KL divergence from there: summed over parts, they are the chain's.
    """
    before, steps = chain[:, :-1], chain.shape[1] - 1
    times = chain_times(steps, chain.device).repeat(len(chain))
    mean, log_std = (part.view_as(before) for part in step(before.flatten(0, 1), times))
    prior = torch.zeros_like(chain[:, :1])
    return torch.cat([prior, mean], dim=1), torch.cat([prior, log_std], dim=1)
