import dataclasses
import json
import os
import random
import select
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from lookact.data.episode_store import MANIFEST, EpisodeStore
from lookact.data.quality import summarise
from lookact.errors import DataError
from lookact.types import Decision, Episode, FloorMap, Observation, Turn

RNG = np.random.default_rng(0)
EPISODE_KEYS = {
    "episode_id", "scene_id", "question_id", "question", "num_turns", "terminal_reward", "is_valid",
    "masking_quality", "dropout_reason", "turns",
}  # fmt: skip
TURN_KEYS = {
    "turn_index", "observation", "action", "reasoning", "num_action_tokens", "masking_method", "masking_confidence",
}  # fmt: skip
REPLY = 'I see it. {"rotation_angle_degrees": -30, "forward_meters": 0.5}'


def observation(text):
    return Observation(
        text=text,
        images={"head": RNG.integers(0, 256, (4, 6, 3), dtype=np.uint8)},
        depth=RNG.random((4, 6)).astype(np.float32),
        state=RNG.random(4).astype(np.float32),
    )


def turn(prompt, reply, *, said=REPLY, method="brace_depth", fresh=False, reward=0.25, over=False):
    # rows of one larger array, as an actor cuts them
    drawn = np.log(RNG.random((2, reply + 3))).astype(np.float32)[1, :reply]
    decision = Decision(
        action=said,
        logprobs=drawn,
        mask=np.arange(reply) >= (reply if method == "failed" else reply // 2),
        token_ids=RNG.integers(0, 99, reply),
        prompt_ids=RNG.integers(0, 99, prompt),
        fresh=fresh,
        mask_method=method,
    )
    info = {"scene_id": "room-1", "question_id": "q-1", "question": "Find the bed.", "spl": np.float64(0.5), "turn": 1}
    return Turn(observation("Find the bed. Turn 1 of 3."), decision, reward, over, False, info)


def episode(name="e0", *turns, error=None):
    turns = turns or (turn(5, 3, fresh=True), turn(2, 4), turn(6, 2, fresh=True), turn(1, 3, reward=1.0, over=True))
    return Episode(name, 2, 11, turns, last=observation("Arrived."), policy_version=4, error=error)


def rows(folder):
    return [json.loads(line) for line in (folder / MANIFEST).read_text().splitlines()]


def same(a, b):
    """Equal through and through; arrays to the last bit and in type."""
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a == b


def test_what_is_read_back_equals_what_was_written(tmp_path):
    written = [episode("e0"), episode("e1", turn(3, 2, fresh=True), error="RuntimeError: the floor gave way")]
    store = EpisodeStore(tmp_path)
    for one in written:
        store.add(one)
    read = list(EpisodeStore(tmp_path).episodes())
    assert all(map(same, written, read))
    assert not same(written[0], read[1])


def test_an_id_cannot_lead_out_of_the_folder(tmp_path):
    store = EpisodeStore(tmp_path / "a/b")
    ids = ["../../escaped", "/etc/x", "..", "x" * 500]
    for id in ids:
        store.add(Episode(id, 0, 5, (), None, error="the world broke"))
    assert [episode.id for episode in store.episodes()] == ids
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert all(path.is_file() for path in store.folder.iterdir())


def test_an_episode_that_failed_at_once_is_kept(tmp_path):
    broken = Episode("e0", 0, 1, (), error="OSError: no such room")
    EpisodeStore(tmp_path).add(broken)
    assert same(next(EpisodeStore(tmp_path).episodes()), broken)
    (row,) = rows(tmp_path)
    assert (row["num_turns"], row["is_valid"], row["dropout_reason"]) == (0, False, "environment error")


def test_the_manifest_has_the_keys_that_other_tools_read(tmp_path):
    EpisodeStore(tmp_path).add(episode())
    (row,) = rows(tmp_path)
    assert set(row) >= EPISODE_KEYS
    assert {key: row[key] for key in ("episode_id", "scene_id", "question_id", "question", "num_turns")} == {
        "episode_id": "e0", "scene_id": "room-1", "question_id": "q-1", "question": "Find the bed.", "num_turns": 4,
    }  # fmt: skip
    assert (row["terminal_reward"], row["is_valid"], row["masking_quality"]) == (1.0, True, "good")
    assert row["dropout_reason"] is None
    for index, told in enumerate(row["turns"]):
        assert set(told) >= TURN_KEYS
        assert (told["turn_index"], told["masking_method"], told["masking_confidence"]) == (index, "brace_depth", 1.0)
        assert told["action"] == {"rotation_angle_degrees": -30, "forward_meters": 0.5}
        assert told["reasoning"] == "I see it."
    assert [told["num_action_tokens"] for told in row["turns"]] == [2, 2, 1, 2]


def test_tensors_load_without_pickle_and_tell_the_whole_context(tmp_path):
    one = episode()
    EpisodeStore(tmp_path).add(one)
    saved = torch.load(tmp_path / "e0_tensors.pt", weights_only=True)["turns"]
    # 5 fed; 5 + 3 sampled + 2 fed; a rebuilt context of 6; 6 + 2 sampled + 1 fed
    assert [arrays["input_token_length"] for arrays in saved] == [5, 10, 6, 9]
    for arrays, lived in zip(saved, one.turns, strict=True):
        assert (arrays["generated_ids"].dtype, arrays["action_token_mask"].dtype) == (torch.int64, torch.bool)
        assert arrays["generated_ids"].tolist() == lived.decision.token_ids.tolist()
        assert arrays["action_token_mask"].tolist() == lived.decision.mask.tolist()


@pytest.mark.parametrize(
    ("said", "method", "quality", "reason"),
    [
        ("mumble", "failed", "fallback_used", "no action found"),
        ('{"rotation_angle_degrees": 3', "regex", "low_confidence", "invalid JSON"),
        ('{"rotation_angle_degrees": 3}', "brace_depth", "good", "invalid action"),
        (REPLY, "last_n", "fallback_used", None),
    ],
)
def test_invalid_episodes_are_kept_with_their_reason(tmp_path, said, method, quality, reason):
    bad = episode("e0", turn(5, 3, said=said, method=method, fresh=True))
    EpisodeStore(tmp_path).add(bad)
    (row,) = rows(tmp_path)
    assert (row["masking_quality"], row["dropout_reason"], row["is_valid"]) == (quality, reason, reason is None)
    assert same(EpisodeStore(tmp_path).load(row), bad)


def test_a_torn_last_line_is_dropped_and_the_rest_stays(tmp_path):
    store = EpisodeStore(tmp_path)
    for name in ("e0", "e1"):
        store.add(episode(name))
    whole = (tmp_path / MANIFEST).read_bytes()
    (tmp_path / MANIFEST).write_bytes(whole[:-40])
    again = EpisodeStore(tmp_path)
    assert again.ids() == {"e0"}
    again.add(episode("e1"))
    assert [row["episode_id"] for row in EpisodeStore(tmp_path).rows()] == ["e0", "e1"]


def test_a_manifest_torn_in_its_only_line_is_empty(tmp_path):
    (tmp_path / MANIFEST).write_text('{"episode_id": "e0", "sce')
    assert EpisodeStore(tmp_path).ids() == set()


def test_tensors_left_unfinished_or_unlisted_are_written_anew(tmp_path):
    (tmp_path / "e0_tensors.partial").write_bytes(b"half of a zip")
    (tmp_path / "e0_tensors.pt").write_bytes(b"never listed")
    store = EpisodeStore(tmp_path)
    assert store.ids() == set()
    one = episode("e0")
    store.add(one)
    assert same(next(store.episodes()), one)
    assert not list(tmp_path.glob("*.partial"))


def test_a_broken_folder_is_told_in_one_line(tmp_path):
    store = EpisodeStore(tmp_path)
    store.add(episode("e0"))
    (tmp_path / "e0_tensors.pt").write_bytes(b"not tensors")
    with pytest.raises(DataError, match="can't be read"):
        next(store.episodes())
    (tmp_path / "e0_tensors.pt").unlink()
    with pytest.raises(DataError, match="copied in part"):
        next(store.episodes())
    (tmp_path / MANIFEST).write_text("nonsense\n")
    with pytest.raises(DataError, match="line 1 is not a JSON object: remove the line and collect again"):
        store.ids()


def step(number, *, reward=0.5, over=False):
    action = RNG.random(3).astype(np.float32)
    none = np.zeros(0, np.float32)
    seen = replace(observation("Push the red cube."), depth=None)
    info = {"success": over, "tool": RNG.random(2), "number": np.int64(number)}
    return Turn(seen, Decision(action, none, none > 0), reward, over, False, info)


def test_an_episode_of_action_vectors_is_read_back_equal(tmp_path):
    steered = Episode("e0", 0, 7, (step(0), step(1, over=True)), last=observation("done"))
    EpisodeStore(tmp_path).add(steered)
    read = next(EpisodeStore(tmp_path).episodes())
    assert all(same(a.decision, b.decision) for a, b in zip(steered.turns, read.turns, strict=True))
    assert all(same(a.observation, b.observation) for a, b in zip(steered.turns, read.turns, strict=True))
    (row,) = rows(tmp_path)
    assert (row["question"], row["success"], row["is_valid"], row["masking_quality"]) == (
        "Push the red cube.", True, True, "good",
    )  # fmt: skip
    assert row["turns"][0]["reply"] is None
    assert np.float32(row["turns"][0]["action"]).tolist() == steered.turns[0].decision.action.tolist()
    assert row["turns"][1]["info"]["tool"] == steered.turns[1].info["tool"].tolist()


def test_words_that_nobody_sampled_are_kept_as_well(tmp_path):
    none = np.zeros(0, np.float32)
    drawn = Episode("e0", 0, 1, (Turn(observation("go"), Decision(REPLY, none, none > 0), 0.0, True, False),))
    EpisodeStore(tmp_path).add(drawn)
    assert same(next(EpisodeStore(tmp_path).episodes()), drawn)
    assert rows(tmp_path)[0]["success"] is None


def test_the_map_of_a_room_comes_back_with_its_scale(tmp_path):
    room = FloorMap(RNG.integers(0, 256, (20, 20, 3), dtype=np.uint8), (1.25, -0.1), 12.5)
    walked = replace(episode(), floor_map=room)
    EpisodeStore(tmp_path).add(walked)
    assert same(next(EpisodeStore(tmp_path).episodes()), walked)


def test_pictures_take_no_more_than_they_need(tmp_path):
    flat = Observation(images={"head": np.full((96, 96, 3), 7, np.uint8)})
    none = np.zeros(0, np.float32)
    EpisodeStore(tmp_path).add(Episode("e0", 0, 1, (Turn(flat, Decision(none, none, none > 0), 0.0, True, False),)))
    assert (tmp_path / "e0_tensors.pt").stat().st_size < 96 * 96 * 3 / 5


def test_older_stores_with_pictures_as_they_are_can_still_be_read(tmp_path):
    one = episode()
    EpisodeStore(tmp_path).add(one)
    saved = torch.load(tmp_path / "e0_tensors.pt", weights_only=True)
    for arrays, seen in zip([*saved["turns"], saved["last"]], [*(t.observation for t in one.turns), one.last]):
        arrays["images"] = {name: torch.from_numpy(image) for name, image in seen.images.items()}
    torch.save(saved, tmp_path / "e0_tensors.pt")
    (row,) = rows(tmp_path)
    del row["floor_map"]
    assert same(EpisodeStore(tmp_path).load(row), one)


def fill(folder, total, tell=lambda: None):
    store = EpisodeStore(folder)
    there = store.ids()
    for number in range(total):
        if f"e{number}" not in there:
            store.add(episode(f"e{number}"))
            tell()


def test_a_collection_killed_at_any_moment_goes_on_without_loss_or_double(tmp_path):
    dice = random.Random(1)
    for _ in range(6):
        allowed, allow = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(allow)
            try:
                # an episode at a time, and one more than was allowed: it is killed somewhere in that one
                fill(tmp_path, 60, lambda: os.read(allowed, 1))  # noqa: B023
            finally:
                os._exit(0)
        os.write(allow, b"." * dice.randint(1, 6))
        while select.select([allowed], [], [], 0)[0]:
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.004))
        os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        os.close(allowed)
        os.close(allow)
        before = EpisodeStore(tmp_path).ids()
        assert all(len(one.turns) == 4 for one in EpisodeStore(tmp_path).episodes())
    assert 6 <= len(before) < 60
    fill(tmp_path, 60)
    names = [row["episode_id"] for row in EpisodeStore(tmp_path).rows()]
    assert sorted(names) == sorted({f"e{number}" for number in range(60)})


def test_the_manifest_alone_tells_what_the_episodes_amount_to(tmp_path):
    store = EpisodeStore(tmp_path)
    kinds = [
        episode("whole"),
        episode("cut", turn(5, 3, fresh=True, method="regex")),
        episode("lost", turn(5, 3, fresh=True, method="failed"), error="EnvError: gone"),
    ]
    for each in kinds:
        store.add(each)
    assert store.summary() == summarise(kinds) == summarise(store.episodes())
    assert store.summary().dropout_rate == pytest.approx(1 / 3)
