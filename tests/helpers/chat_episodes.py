"""Three short chat episodes: one that arrived, one that did not, and one that failed before its first turn."""

import numpy as np

from lookact.types import Decision, Episode, Observation, Turn

MOVE = '{"rotation_angle_degrees": 30, "forward_meters": 0.5}'
OUTCOME = {"success_rate": "success", "spl": "spl"}


def turn(
    said: str = MOVE, *, reward: float = 0.0, success: bool = False, valid: bool = True, method: str = "brace_depth"
) -> Turn:
    blank = np.zeros(4, np.float32)
    seen = Observation(text="Find the bed.", images={"head": np.full((8, 8, 3), 9, np.uint8)}, state=blank)
    info = {"success": success, "spl": 0.5 * success, "valid_action": valid}
    return Turn(seen, Decision(said, blank, blank == 0, mask_method=method), reward, success, False, info)


ARRIVED = Episode("a", 0, 0, (turn(reward=0.25), turn(reward=1.0, success=True)))
LOST = Episode("b", 0, 1, (turn("mumble", valid=False, method="failed"), turn()))
BROKEN = Episode("c", 1, 2, (), error="OSError: no such room")
