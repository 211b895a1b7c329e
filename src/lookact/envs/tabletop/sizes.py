"""How many numbers the table's states and actions have."""

STATE_SIZE = 11
TRUE_STATE_SIZE = 14
ACTION_SIZES = {"ee_delta": 4, "delta_qpos": 8, "ee_delta_yaw": 5}


def true_state_size(control: str) -> int:
    """Numbers of the simulator's true state; where the gripper turns, also how far it is from the object's grip."""
    return TRUE_STATE_SIZE + int(control == "ee_delta_yaw")
