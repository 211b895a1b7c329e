from lookact.training.tables import QUERY_COLUMNS, Table


def test_rows_are_on_disk_under_the_columns_as_they_come(tmp_path):
    table = Table(tmp_path / "deep" / "vlm_query_log.csv", QUERY_COLUMNS)
    table.extend([(0.5, -1.25, 1, "now", 3)])
    table.extend([(0, 0, -1, "later", 4), (1, 2, 0, "later", 4)])
    lines = table.path.read_text().splitlines()
    assert lines[0] == "ground_truth_score_1,ground_truth_score_2,vlm_predicted_label,timestamp,train_iter"
    assert lines[1:] == ["0.5,-1.25,1,now,3", "0,0,-1,later,4", "1,2,0,later,4"]
    assert len(table) == 3


def test_a_resumed_table_forgets_rows_that_will_be_written_again(tmp_path):
    table = Table(tmp_path / "eval.csv", ("step", "success_rate"))
    table.extend([(10, 0.5)])
    kept = table.state_dict()
    table.extend([(20, 0.75)])
    again = Table(tmp_path / "eval.csv", ("step", "success_rate"))
    again.load_state_dict(kept)
    again.extend([(20, 0.8)])
    assert again.path.read_text().split() == ["step,success_rate", "10,0.5", "20,0.8"]


def test_a_new_run_starts_with_an_empty_table_and_a_header(tmp_path):
    path = tmp_path / "eval.csv"
    path.write_text("left by a run that was thrown away\n")
    table = Table(path, ("step", "success_rate"))
    table.begin()
    assert path.read_text().split() == ["step,success_rate"]
    assert len(table) == 0
