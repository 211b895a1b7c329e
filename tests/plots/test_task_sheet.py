from lookact.plots.task_sheet import draw_task_sheet, expert_pictures


def test_a_sheet_shows_an_experts_episode_with_the_goal_in_words():
    moments = expert_pictures("Pendulum-v1", count=3, size=32)
    assert [picture.shape for picture, _, _ in moments] == [(32, 32, 3)] * 3
    # it hangs, is swung up, and stands
    assert [success for *_, success in moments][0::2] == [False, True]
    figure = draw_task_sheet(["Pendulum-v1", "CartPole-v1"], count=3, size=32)
    assert [row.get_suptitle().partition(":")[0] for row in figure.subfigs] == ["Pendulum-v1", "CartPole-v1"]
    assert "pointing straight up" in figure.subfigs[0].get_suptitle()
    assert len(figure.subfigs[0].axes) == 3


def test_a_metaworld_task_is_told_in_the_words_of_its_view():
    (row,) = draw_task_sheet(["drawer-open-v3"], count=2, size=32).subfigs
    assert row.get_suptitle() == "drawer-open-v3: the goal is to pull the orange drawer open."
    # the expert opens it within the episode: the last reward stands in the colour of success
    colours = [axes.xaxis.label.get_color() for axes in row.axes]
    assert colours[0] != colours[1]
