"""How many numbers the table's states and actions have."""

STATE_SIZE = 11
ACTION_SIZES = {"ee_delta": 4, "delta_qpos": 8}
