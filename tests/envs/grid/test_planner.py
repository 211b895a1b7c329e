from lookact.envs.grid.planner import shortest_plan


def test_the_shortest_of_two_ways_is_found():
    edges = {0: [("long", 1), ("short", 3)], 1: [("on", 2)], 2: [("on", 3)], 3: [("end", 4)], 4: []}
    assert shortest_plan(0, edges.__getitem__, lambda state: state == 4) == ["short", "end"]


def test_no_way_is_none_and_being_there_is_an_empty_plan():
    assert shortest_plan(0, lambda state: [], lambda state: state == 1) is None
    assert shortest_plan(1, lambda state: [], lambda state: state == 1) == []
