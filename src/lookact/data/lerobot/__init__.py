"""LeRobotDataset v3, read and written."""
