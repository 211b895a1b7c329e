import io
import json

import numpy as np
import PIL.Image
import pytest

from lookact.viewer.episodes import episode_detail, list_episodes, list_stores, map_picture, picture
from lookact.viewer.folder import NotFound, find


def test_the_list_tells_how_each_episode_ended(tmp_path, write_episodes):
    write_episodes(tmp_path / "s")
    one, two = list_episodes(tmp_path, "s")
    assert (one["id"], one["length"], one["return"], one["ended"]) == ("one", 3, 0.75, "terminated")
    assert (one["question"], one["policy_version"], one["is_valid"]) == ("Find the bed.", 7, False)
    assert one["seed"] == str(2**60 + 1)
    assert (two["ended"], two["error"], two["seed"]) == ("error", "the world broke", 5)
    assert list_stores(tmp_path, find(tmp_path).stores) == [{"place": "s", "episodes": 2}]


def test_an_episode_turn_by_turn(tmp_path, write_episodes, write_tokenizer):
    write_episodes(tmp_path)
    write_tokenizer(tmp_path / "model")
    episode = episode_detail(tmp_path, ".", "one")
    assert [turn["reward"] for turn in episode["turns"]] == [0.25, -0.5, 1.0]
    assert [turn["running"] for turn in episode["turns"]] == [0.25, -0.25, 0.75]
    first, last = episode["turns"][0], episode["turns"][-1]
    assert first["text"] == "Turn 1."
    assert first["cameras"] == [{"name": "head", "height": 4, "width": 6}]
    assert first["action"] == {"forward_meters": 1.0}
    assert first["exact"]
    counted = "".join(piece["text"] for piece in first["pieces"] if piece["counts"])
    assert counted == '{"forward_meters": 1.0}'
    assert (first["counted"], first["tokens"]) == (23, 30)
    assert first["logprob"] == -15.0
    assert (last["terminated"], last["info"]["success"]) == (True, True)
    assert episode["last"]["text"] == "Arrived."
    assert json.loads(json.dumps(episode, allow_nan=False)) == episode


@pytest.mark.parametrize(("turn", "light"), [(0, 0), (2, 80), (3, 200)])
def test_pictures_of_turns_and_of_the_end(tmp_path, write_episodes, turn, light):
    write_episodes(tmp_path)
    image = np.asarray(PIL.Image.open(io.BytesIO(picture(tmp_path, ".", "one", turn, "head"))))
    assert image.shape == (4, 6, 3)
    assert (image == light).all()


@pytest.mark.parametrize("asked", [("none", 0, "head"), ("one", 4, "head"), ("one", -1, "head"), ("one", 0, "wrist")])
def test_a_picture_that_is_not_there(tmp_path, write_episodes, asked):
    write_episodes(tmp_path)
    with pytest.raises(NotFound):
        picture(tmp_path, ".", *asked)


def test_a_room_from_above_with_the_place_of_every_stop(tmp_path, write_walk):
    write_walk(tmp_path)
    told = episode_detail(tmp_path, ".", "walk")["map"]
    # 10 pixels a metre about the middle (1, 2): x goes right and y up
    assert told == {"height": 60, "width": 60, "poses": [[30, 30, 0], [40, 30, 0], [40, 20, 1.571]]}
    image = np.asarray(PIL.Image.open(io.BytesIO(map_picture(tmp_path, ".", "walk"))))
    assert (image == 200).all()
    assert image.shape == (60, 60, 3)
    assert list_episodes(tmp_path, ".")[0]["success"] is True


def test_an_episode_without_a_map_has_none(tmp_path, write_episodes):
    write_episodes(tmp_path)
    assert episode_detail(tmp_path, ".", "one")["map"] is None
    for id in ("one", "none"):
        with pytest.raises(NotFound):
            map_picture(tmp_path, ".", id)


def test_steps_of_a_control_policy(tmp_path, write_steps):
    write_steps(tmp_path)
    (row,) = list_episodes(tmp_path, ".")
    assert (row["acts"], row["success"], row["return"], row["question"]) == ("vectors", False, 1.0, "Push the cube.")
    first, second = episode_detail(tmp_path, ".", "steps")["turns"]
    assert (first["reply"], first["pieces"], first["tokens"], first["logprob"]) == (None, [], 0, None)
    assert first["action"] == [0.5, -1.0]
    assert (second["reward"], second["running"], second["truncated"]) == (0.5, 1.0, True)


def test_a_torn_manifest_shows_what_is_whole_and_is_left_as_it_is(tmp_path, write_episodes):
    manifest = write_episodes(tmp_path) / "episode_manifest.jsonl"
    torn = manifest.read_text()[:-30]
    manifest.write_text(torn)
    assert [row["id"] for row in list_episodes(tmp_path, ".")] == ["one"]
    assert manifest.read_text() == torn


def test_missing_tensors_are_told_and_a_name_that_leads_out_is_not_opened(tmp_path, write_episodes):
    store = write_episodes(tmp_path / "s")
    (store / "two_tensors.pt").rename(tmp_path / "two_tensors.pt")
    assert "two_tensors.pt is missing" in episode_detail(tmp_path / "s", ".", "two")["problem"]
    manifest = store / "episode_manifest.jsonl"
    manifest.write_text(manifest.read_text().replace('"episode_id": "two"', '"episode_id": "../two"'))
    assert "is missing" in episode_detail(tmp_path / "s", ".", "../two")["problem"]


def test_a_tensor_file_cut_short_is_told_without_where_it_lies(tmp_path, write_episodes):
    write_episodes(tmp_path)
    path = tmp_path / "one_tensors.pt"
    path.write_bytes(path.read_bytes()[:100])
    problem = episode_detail(tmp_path, ".", "one")["problem"]
    assert problem.startswith("one_tensors.pt can't be read")
    assert str(tmp_path) not in problem
