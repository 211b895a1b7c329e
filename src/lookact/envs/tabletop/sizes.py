"""How many numbers the table's states and actions have."""

STATE_SIZE = 11
TRUE_STATE_SIZE = 14
ACTION_SIZES = {"ee_delta": 4, "delta_qpos": 8}
