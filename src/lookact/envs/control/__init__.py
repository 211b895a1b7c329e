"""Control tasks from states and images: classic control, MetaWorld."""
