"""What a learning step costs in tokens, images, environment steps, arithmetic and seconds, on one device or many.

Counts are exact and follow from the episodes, or from a plan of them. Seconds are counts over rates: `fit_rates`
takes the rates from small measured runs, a GPU's come from its data sheet and the share of it that such code reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from scipy.optimize import nnls

from lookact.planning.model_shape import ModelShape
from lookact.types import Episode


@dataclass(frozen=True)
class Work:
    """What one learning step does, over all processes."""

    episodes: float
    env_steps: float
    images: float
    image_tokens: float
    """Of one image."""
    prompt_tokens: float
    """Fed, visual ones included."""
    sampled_tokens: float
    prompt_pairs: float
    """(query, key) pairs that attention looks at when prompts are read with all before them kept."""
    sampled_pairs: float
    rounds: float
    """Columns that are sampled one after the other: the longest reply of every turn."""

    def over(self, workers: float) -> Work:
        """One worker's share, if episodes are shared out evenly; rounds are as many for each."""
        shares = {f.name: getattr(self, f.name) / workers for f in fields(self)}
        return Work(**{**shares, "image_tokens": self.image_tokens, "rounds": self.rounds})


def planned_work(
    *, episodes: int, turns: float, image_tokens: float, text_tokens: float, reply_tokens: float, images: float = 1.0
) -> Work:
    """Episodes that are all alike: in every turn so many images, tokens of text and tokens of reply."""
    prompt, steps = images * image_tokens + text_tokens, episodes * turns
    turn = prompt + reply_tokens
    # the past of turn t is t turns long; inside a block every token looks at itself and those before
    past = episodes * turns * (turns - 1) / 2 * turn
    return Work(
        episodes=episodes,
        env_steps=steps,
        images=steps * images,
        image_tokens=image_tokens,
        prompt_tokens=steps * prompt,
        sampled_tokens=steps * reply_tokens,
        prompt_pairs=past * prompt + steps * prompt * (prompt + 1) / 2,
        sampled_pairs=past * reply_tokens + steps * (reply_tokens * prompt + reply_tokens * (reply_tokens + 1) / 2),
        rounds=turns * reply_tokens,
    )


def measured_work(episodes: Sequence[Episode], *, image_tokens: float) -> Work:
    """What was done in these episodes, run side by side in one batch."""
    counts = np.zeros(5)
    longest: dict[int, int] = {}
    for episode in episodes:
        past = 0
        for number, turn in enumerate(episode.turns):
            assert turn.decision.prompt_ids is not None
            prompt, reply = len(turn.decision.prompt_ids), len(turn.decision.logprobs)
            past = 0 if turn.decision.fresh else past
            read, drawn = pairs_of(prompt, past), pairs_of(reply, past + prompt)
            counts += (len(turn.observation.images), prompt, reply, read, drawn)
            past += prompt + reply
            longest[number] = max(longest.get(number, 0), reply)
    images, prompts, replies, prompt_pairs, sampled_pairs = counts.tolist()
    steps = float(sum(len(episode.turns) for episode in episodes))
    return Work(
        episodes=float(len(episodes)),
        env_steps=steps,
        images=images,
        image_tokens=image_tokens,
        prompt_tokens=prompts,
        sampled_tokens=replies,
        prompt_pairs=prompt_pairs,
        sampled_pairs=sampled_pairs,
        rounds=float(sum(longest.values())),
    )


def pairs_of(tokens: float, past: float) -> float:
    """How many keys the queries of a block look at: all that is past, and those before them in the block."""
    return tokens * past + tokens * (tokens + 1) / 2


def reading_flops(shape: ModelShape, work: Work) -> float:
    """Forward FLOPs of pictures and prompts, while acting."""
    return shape.vision_flops(work.images, work.image_tokens) + shape.text_flops(work.prompt_tokens, work.prompt_pairs)


def sampling_flops(shape: ModelShape, work: Work) -> float:
    """Forward FLOPs of sampled tokens, one column after the other."""
    return shape.text_flops(work.sampled_tokens, work.sampled_pairs) + shape.output_flops(work.sampled_tokens)


def scoring_flops(shape: ModelShape, work: Work) -> float:
    """Forward FLOPs of every token in one pass, which is a third of an update's."""
    return reading_flops(shape, work) + sampling_flops(shape, work)


@dataclass(frozen=True)
class Rates:
    """How fast one device does each kind of work."""

    reading: float
    """FLOP/s on prompts and pictures."""
    sampling: float
    """FLOP/s on sampled tokens."""
    round_seconds: float
    """Of one sampled column, however narrow: weights are read, kernels started."""
    learning: float
    """FLOP/s of an update."""
    env_seconds: float
    """Of one environment step, on one core."""


@dataclass(frozen=True)
class Seconds:
    """One learning step's time."""

    rollout: float
    environment: float
    """Within the rollout's."""
    learn: float
    exchange: float
    """Gradients between learners, and weights to those who act."""

    @property
    def total(self) -> float:
        """One after the other."""
        return self.rollout + self.learn + self.exchange

    @property
    def overlapped(self) -> float:
        """Acting for the next step while this one learns."""
        return max(self.rollout, self.learn + self.exchange)


def act_seconds(shape: ModelShape, work: Work, rates: Rates) -> float:
    """One device that acts."""
    computed = reading_flops(shape, work) / rates.reading + sampling_flops(shape, work) / rates.sampling
    return computed + work.rounds * rates.round_seconds + work.env_steps * rates.env_seconds


def learn_seconds(shape: ModelShape, work: Work, rates: Rates, *, passes: float = 3.0) -> float:
    """One device that learns; `passes` counts the forward pass as 1, and 4 with activation checkpointing."""
    return passes * scoring_flops(shape, work) / rates.learning


@dataclass(frozen=True)
class Measured:
    """A small run: what was done, and how long it took."""

    work: Work
    act_seconds: float
    learn_seconds: float


def fit_rates(shape: ModelShape, runs: Sequence[Measured], *, env_seconds: float) -> Rates:
    """The rates under which the runs would take what they took, by least squares on relative errors, none negative."""
    rows = [(reading_flops(shape, r.work), sampling_flops(shape, r.work), r.work.rounds) for r in runs]
    left = np.array([r.act_seconds - r.work.env_steps * env_seconds for r in runs])
    scale = np.array(rows).max(axis=0)
    solved, _ = nnls(np.array(rows) / scale / left[:, None], np.ones(len(runs)))
    reading, sampling, each_round = solved / scale
    learned = np.array([3.0 * scoring_flops(shape, r.work) for r in runs])
    slowness = np.median(np.array([r.learn_seconds for r in runs]) / learned)
    return Rates(
        reading=float(1.0 / max(reading, 1e-30)),
        sampling=float(1.0 / max(sampling, 1e-30)),
        round_seconds=float(each_round),
        learning=float(1.0 / slowness),
        env_seconds=env_seconds,
    )
