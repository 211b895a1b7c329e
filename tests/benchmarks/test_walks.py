from benchmarks.walks import Load, RecordedWalk, make_specs, make_walks


def test_walks_show_every_turn_of_a_navigation_episode(load):
    walks = make_walks(load)
    assert [len(walk) for walk in walks] == [load.turns + 1] * load.groups
    ends = [observation.text.split(". ")[-1] for observation in walks[0]]
    assert ends == ["Turn 1 of 3.", "Turn 2 of 3.", "Turn 3 of 3.", "Out of turns."]
    assert all(observation.images["head"].shape == (96, 96, 3) for walk in walks for observation in walk)


def test_a_group_starts_alike_and_half_of_it_is_paid(load):
    walks, env = make_walks(load), RecordedWalk(make_walks(load))
    plans = make_specs(Load(groups=2, size=4, turns=3))
    assert [plan.options["walk"] for plan in plans] == [plan.group for plan in plans] == [0] * 4 + [1] * 4
    for plan in plans:
        seen, _ = env.reset(seed=plan.seed, options=plan.options)
        assert seen.text == walks[plan.group][0].text
        steps = [env.step("anything") for _ in range(load.turns)]
        assert [step[1] for step in steps] == [0.0, 0.0, float(plan.seed % 2)]
        assert [step[3] for step in steps] == [False, False, True]
