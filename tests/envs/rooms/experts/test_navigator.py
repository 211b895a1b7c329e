import math
import re

import numpy as np
import pytest

from lookact.envs.rooms.experts.demonstrate import demonstrate, random_reply
from lookact.envs.rooms.experts.navigator import Navigator
from lookact.envs.rooms.motion import Limits, Pose
from lookact.envs.rooms.navigation import Navigation
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.simulator import render_view
from lookact.text.actions import parse_action, reasoning_of

CAMERA = Camera.square(96)
CALM = {"collided": False}
CHAIR_AHEAD = {"chair": (5.0, 1.5, 1.0, 1.0, 0.9)}
REPLY = re.compile(r'[A-Z][a-z ]+\. \{"rotation_angle_degrees": (-?\d+), "forward_meters": (\d\.\d+)\}')


def navigate(place, pose):
    navigator = Navigator(0, camera=CAMERA, limits=Limits(), success_distance=1.0)
    return navigator.act(render_view(place, pose, CAMERA), CALM)


def test_it_walks_straight_to_what_it_sees(make_place):
    reply = navigate(make_place(6.0, 4.0, CHAIR_AHEAD), Pose(1.05, 2.05, 0.0, 1.2))
    assert reply == 'I see it far ahead. {"rotation_angle_degrees": 0, "forward_meters": 1.5}'


def test_it_turns_towards_what_it_sees(make_place):
    reply = navigate(make_place(6.0, 4.0, CHAIR_AHEAD), Pose(1.05, 2.05, -math.radians(30), 1.2))
    assert reply == 'I see it far on the left. {"rotation_angle_degrees": 30, "forward_meters": 1.5}'


def test_a_goal_behind_is_searched_for_and_not_known(make_place):
    behind = Pose(3.0, 2.0, math.pi, 1.2)
    here, there = (make_place(6.0, 4.0, {"chair": (5.0, y, 1.0, 1.0, 0.9)}) for y in (0.0, 3.0))
    search = 'Not in view. {"rotation_angle_degrees": 90, "forward_meters": 0.0}'
    assert navigate(here, behind) == navigate(there, behind) == search


def test_it_remembers_what_is_out_of_view(make_place):
    place = make_place(6.0, 4.0, CHAIR_AHEAD)
    navigator = Navigator(0, camera=CAMERA, limits=Limits(), success_distance=1.0)
    navigator.act(render_view(place, Pose(1.05, 2.05, 0.0, 1.2), CAMERA), CALM)
    reply = navigator.act(render_view(place, Pose(1.05, 2.05, math.radians(90), 1.2), CAMERA), CALM)
    assert reasoning_of(reply) == "It is out of view on the right."
    assert parse_action(reply)["rotation_angle_degrees"] == -90


def test_it_walks_around_what_is_in_the_way(make_place):
    place = make_place(8.0, 4.0, {"chair": (7.0, 1.5, 1.0, 1.0, 1.4), "table": (3.0, 1.0, 0.6, 2.0, 0.8)})
    reply = navigate(place, Pose(2.05, 2.05, 0.0, 1.2))
    assert reasoning_of(reply) == "I see it far ahead."
    assert abs(parse_action(reply)["rotation_angle_degrees"]) >= 45


def test_after_a_collision_it_tries_another_way(make_place):
    place = make_place(6.0, 4.0, CHAIR_AHEAD)
    navigator = Navigator(0, camera=CAMERA, limits=Limits(), success_distance=1.0)
    view = render_view(place, Pose(1.05, 2.05, 0.0, 1.2), CAMERA)
    first = navigator.act(view, CALM)
    assert parse_action(navigator.act(view, {"collided": True})) != parse_action(first)


def test_replies_are_quantised_and_of_few_sentences():
    env = Navigation()
    replies = [turn.label for seed in range(8) for turn in demonstrate(env, seed, noise=0.3)]
    sentences = set()
    for reply in replies:
        match = REPLY.fullmatch(reply)
        assert match, reply
        rotation, forward = int(match[1]), float(match[2])
        assert rotation % 15 == 0
        assert forward % 0.25 == 0
        assert forward <= env.limits.forward_meters
        sentences.add(re.sub(rf"\b({'|'.join(spoken_labels())})\b", "X", reasoning_of(reply)))
    assert 4 <= len(sentences) <= 11


def spoken_labels():
    from lookact.envs.rooms.scene import CLASSES

    return [label.replace("_", " ") for label in CLASSES]


@pytest.mark.slow
def test_it_arrives_where_a_random_walk_does_not():
    env = Navigation()
    arrived = [demonstrate(env, seed)[-1].info["success"] for seed in range(200)]
    assert np.mean(arrived) >= 0.95
    blind = Navigation(image_size=8)
    lucky = [random_episode(blind, seed) for seed in range(200)]
    assert np.mean(lucky) <= 0.10


@pytest.mark.slow
def test_it_recovers_from_noise():
    env = Navigation()
    assert np.mean([demonstrate(env, seed, noise=0.2)[-1].info["success"] for seed in range(60)]) >= 0.8


def random_episode(env, seed):
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    while True:
        *_, terminated, truncated, info = env.step(random_reply(env, rng))
        if terminated or truncated:
            return info["success"]
