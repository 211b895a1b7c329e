"""Ten thousand questions, asked once for all tests of this folder."""

from collections import defaultdict

import pytest

from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.questions import ALL, ask
from lookact.envs.rooms.scene import Scene
from lookact.envs.rooms.vsi import Question

ROOMY = RoomStyle(objects=(9, 14), side=(5.0, 8.0), distinct=False)
FEW_KINDS = ("chair", "stool", "table", "shelf", "tv_monitor", "bed")
CROWDED = RoomStyle(objects=(8, 12), side=(5.0, 8.0), distinct=False, classes=FEW_KINDS)
STYLES = (ROOMY, ROOMY, CROWDED, RoomStyle())


@pytest.fixture(scope="session")
def asked() -> dict[str, list[tuple[Scene, Question]]]:
    """Question type to (scene, question), all types, from 240 rooms; the walk is rendered for every sixth room."""
    groups = defaultdict(list)
    for seed in range(240):
        scene = generate_room(seed, STYLES[seed % 4])
        types = ALL if seed % 12 in (0, 1) else [name for name in ALL if name != "obj_appearance_order"]
        for question in ask(scene, seed=7, types=types, per_type=8):
            groups[question.question_type].append((scene, question))
    return dict(groups)
