"""A Panda-like arm at a table: coloured objects, spoken tasks, two cameras (extra `robot`)."""
