"""Names, options and what is told apart by name."""

from collections import Counter

import numpy as np

from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.questions.facts import Facts, choose, spoken


def test_the_letter_points_at_the_answer_and_is_every_letter_alike() -> None:
    rng = np.random.default_rng(0)
    letters = Counter()
    for _ in range(3000):
        options, letter = choose(rng, "yes", ["no", "never"])
        assert sorted(option[3:] for option in options) == ["never", "no", "yes"]
        assert f"{letter}. yes" in options
        letters[letter] += 1
    assert set(letters) == set("ABC")
    assert max(letters.values()) < 1100


def test_labels_as_words() -> None:
    assert spoken("tv_monitor") == "tv monitor"


def test_names_of_one_and_of_several() -> None:
    scene = generate_room(2, RoomStyle(objects=(8, 8), classes=("chair", "bed", "table"), distinct=False, side=(6, 8)))
    facts = Facts(scene)
    labels = [box.label for box in scene.boxes]
    assert {label: len(members) for label, members in facts.by_label.items()} == Counter(labels)
    assert all(labels.count(labels[index]) == 1 for index in facts.unique)
    np.testing.assert_array_equal(facts.centres, [box.centroid[:2] for box in scene.boxes])


def test_a_glimpse_comes_no_later_than_plain_view() -> None:
    seen = Facts(generate_room(4)).first_seen
    assert (seen[:, 0] <= seen[:, 1]).all()
    assert np.isfinite(seen[:, 1]).any()
