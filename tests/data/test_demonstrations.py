import dataclasses

import numpy as np
import pytest

from lookact.algorithms.vlm import template_of
from lookact.data.demonstrations import demo_episode
from lookact.data.packing import to_segments
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.types import Demonstration, EpisodeSpec, Observation


def seen(text, *shades, size=64):
    images = {f"camera{i}": np.full((size, size, 3), shade, np.uint8) for i, shade in enumerate(shades)}
    return Observation(text=text, images=images)


DEMO = Demonstration(
    observations=(seen("Find the bed.", 10), seen("Moved.", 20, 30), seen("Blocked.")),
    replies=("Left.", "Anywhere.", "Right."),
    imitate=(True, False, True),
)


def test_the_conversation_reads_as_it_was_held(chat):
    episode = demo_episode(DEMO, template_of(chat, system="Walk."), name="d")
    (segment,) = to_segments(episode)
    image = "<|vision_start|>" + "<|image_pad|>" * 4 + "<|vision_end|>"
    reply = "<|im_end|>\n<|im_start|>assistant\n"
    assert chat.tokenizer.decode(segment.ids) == (
        f"<|im_start|>system\nWalk.<|im_end|>\n<|im_start|>user\n{image}Find the bed.{reply}Left.<|im_end|>"
        f"\n<|im_start|>user\n{image}{image}Moved.{reply}Anywhere.<|im_end|>"
        f"\n<|im_start|>user\nBlocked.{reply}Right.<|im_end|>"
    )
    assert [int(picture[0, 0, 0]) for picture in segment.images] == [10, 20, 30]
    assert (episode.terminated, episode.id) == (True, "d")


def test_only_replies_that_the_expert_stands_by_count_up_to_their_end(chat):
    (segment,) = to_segments(demo_episode(DEMO, template_of(chat), name="d"))
    counted = segment.ids[segment.positions[segment.mask]]
    assert chat.tokenizer.decode(counted) == "Left.<|im_end|>Right.<|im_end|>"


class Echo:
    """Shows the same pictures and texts as a demonstration, whatever is done."""

    def reset(self, *, seed, options):
        self.turn = 0
        return DEMO.observations[0], {}

    def step(self, action):
        self.turn += 1
        over = self.turn == len(DEMO.observations)
        return DEMO.observations[self.turn % len(DEMO.observations)], 0.0, over, False, {}


@pytest.mark.parametrize("max_tokens", [1, 6])
def test_prompts_are_those_that_the_policy_itself_is_given(chat, max_tokens):
    actor = HFSampler(chat, Sampling(max_tokens=max_tokens, min_action_tokens=1), system="Walk.")
    (lived,) = collect([EpisodeSpec("e", 0, 0)], [Echo()], actor)
    shown = demo_episode(DEMO, template_of(chat, system="Walk."), name="d")
    replies = [turn.decision.token_ids for turn in lived.turns]
    for own, told, before in zip(lived.turns, shown.turns, [None, *replies[:-1]], strict=True):
        # where the reply before was cut off, its end is told with this prompt
        end = [] if before is None or before[-1] == chat.end_id else [chat.end_id]
        assert own.decision.prompt_ids.tolist() == [*end, *told.decision.prompt_ids]


def test_a_demonstration_is_one_segment_with_zero_reward(chat):
    short = dataclasses.replace(DEMO, observations=DEMO.observations[:1], replies=("Left.",), imitate=(True,))
    (segment,) = to_segments(demo_episode(short, template_of(chat), name="d"))
    assert segment.episode_return == 0.0
    assert not segment.logprobs.any()
