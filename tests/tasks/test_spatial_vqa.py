import re
from dataclasses import replace

import pytest

from lookact.envs.rooms.arkit import save_scene
from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.vsi import Question
from lookact.errors import DataError
from lookact.recipes.ppo.config import EASY_ROOMS
from lookact.rollout.collect import make_specs
from lookact.tasks.settings import SpatialVQAConfig
from lookact.tasks.spatial_vqa import SpatialVQATask, benchmark_rows, rounded, scene_questions
from question_files import save_questions

PLANS = make_specs(0, "test", groups=6)


def test_a_brief_question_is_asked_again_in_every_turn():
    env = SpatialVQATask(EASY_ROOMS).make_env()
    seen, _ = env.reset(seed=0, options=PLANS[0].options)
    question = seen.text
    for turn in range(1, EASY_ROOMS.max_turns):
        seen, *_ = env.step('{"rotation_angle_degrees": 90, "forward_meters": 0.0}')
        assert seen.text == (f"{question} Last turn." if turn == EASY_ROOMS.max_turns - 1 else question)


def test_questions_as_vsi_puts_them_are_asked_once():
    env = SpatialVQATask(replace(EASY_ROOMS, prompts="vsi", types=("room_size_estimation",))).make_env()
    first, _ = env.reset(seed=0, options=PLANS[0].options)
    second, *_ = env.step("hm")
    assert "Please answer" in first.text
    assert second.text == "Invalid. Turn 2 of 4: move or answer."


@pytest.mark.parametrize(
    ("reply", "kind", "expected"),
    [
        ('I see. {"answer": "187"}', "object_size_estimation", 'I see. {"answer": "190"}'),
        ('{"answer": "0.1"}', "object_abs_distance", '{"answer": "0.5"}'),
        ('{"answer": "2.3"}', "object_abs_distance", '{"answer": "2.5"}'),
        ('{"answer": "3"}', "object_counting", '{"answer": "3"}'),
        # 21.8 is 9% over 20 and 10% under 24; 2 is less than the least
        ('{"answer": "21.8"}', "room_size_estimation", '{"answer": "20"}'),
        ('{"answer": "2.0"}', "room_size_estimation", '{"answer": "4"}'),
        ('No. {"rotation_angle_degrees": 90, "forward_meters": 0.0}', "object_abs_distance", None),
    ],
)
def test_demonstrated_numbers_are_few(reply, kind, expected):
    assert rounded(reply, kind) == (expected or reply)


def test_demonstrations_end_with_an_answer_and_see_what_a_policy_sees():
    env = SpatialVQATask(EASY_ROOMS).make_env()
    for plan, demo in zip(PLANS, SpatialVQATask(EASY_ROOMS).demonstrations(PLANS, noise=0.0)):
        assert '"answer"' in demo.replies[-1]
        shown, _ = env.reset(seed=plan.seed, options=plan.options)
        assert demo.observations[0].text == shown.text
        assert (demo.observations[0].images["head"] == shown.images["head"]).all()


def test_the_blind_are_asked_the_same_and_shown_black_images():
    blind = SpatialVQATask(replace(EASY_ROOMS, blind=True))
    pairs = zip(*(task.demonstrations(PLANS, noise=0.0) for task in (SpatialVQATask(EASY_ROOMS), blind)))
    for sighted, demo in pairs:
        assert demo.replies == sighted.replies
        assert [seen.text for seen in demo.observations] == [seen.text for seen in sighted.observations]
        assert not any(seen.images["head"].any() for seen in demo.observations)
    env = blind.make_env()
    first, _ = env.reset(seed=0, options=PLANS[0].options)
    second, *_ = env.step("hm")
    assert not first.images["head"].any()
    assert not second.images["head"].any()


def test_in_haste_the_expert_answers_at_the_first_look_though_nobody_asked_it_to():
    patient, hasty = (
        list(SpatialVQATask(EASY_ROOMS, guess_fraction=fraction).demonstrations(PLANS, noise=0.0))
        for fraction in (0.0, 1.0)
    )
    assert any(len(demo.replies) == EASY_ROOMS.max_turns for demo in patient)
    for calm, demo in zip(patient, hasty):
        assert len(demo.replies) == 1
        assert '"answer"' in demo.replies[0]
        assert demo.observations[0].text == calm.observations[0].text
    assert any("I must guess." in demo.replies[0] for demo in hasty)


@pytest.mark.slow
def test_a_share_of_the_demonstrations_is_hasty():
    demos = SpatialVQATask(EASY_ROOMS, guess_fraction=0.5).demonstrations(make_specs(0, "test", groups=40), noise=0.0)
    lengths = [len(demo.replies) for demo in demos]
    assert 10 < sum(length == 1 for length in lengths) < 35


@pytest.mark.slow
def test_the_corpus_holds_prompts_and_replies():
    corpus = SpatialVQATask(EASY_ROOMS).corpus()
    assert any(re.match("How many of the", text) for text in corpus)
    assert any('"answer"' in text for text in corpus)


@pytest.fixture
def recorded(tmp_path):
    scene = generate_room(3, RoomStyle(objects=(5, 6)))
    save_scene(scene, tmp_path / "41048190", frames=2)
    return tmp_path / "41048190"


def test_recorded_scenes_are_asked_about_by_our_own_questions(recorded):
    env = SpatialVQAConfig(
        scenes=(str(recorded),), types=("object_size_estimation", "room_size_estimation"), per_type=2
    )
    rows = scene_questions(env, 0)
    assert {question.dataset for question, _ in rows} == {"generated"}
    assert {folder for _, folder in rows} == {str(recorded)}
    assert scene_questions(EASY_ROOMS, 0) is None


def test_a_benchmarks_rows_find_the_folders_of_their_scenes(recorded, tmp_path):
    rows = [
        Question(n, "arkitscenes", scene, "room_size_estimation", "How large?", "20")
        for n, scene in enumerate(("41048190", "47333462"))
    ]
    path = tmp_path / "test.jsonl"
    save_questions(rows, path)
    assert benchmark_rows(str(path), (str(recorded),)) == [(rows[0], str(recorded))]
    with pytest.raises(DataError, match=r"evaluation\.scenes"):
        benchmark_rows(str(path), ())
