"""Control tasks from states and pictures: classic control, MetaWorld."""
