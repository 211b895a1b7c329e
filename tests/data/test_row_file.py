from pathlib import Path

import pytest
import torch

from lookact.data.row_file import RowFile
from lookact.errors import DataError


def mapped(tensor, folder):
    """Whether a tensor's memory is a deleted file of a folder, as Linux tells."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if begin <= tensor.data_ptr() < end:
            return str(folder) in line and line.endswith("(deleted)")
    return False


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
def test_rows_come_back_in_order_from_a_file_without_a_name(tmp_path, dtype):
    rows = torch.arange(24).view(4, 2, 3).to(dtype)
    file = RowFile(tmp_path)
    file.append(rows[:3])
    file.append(rows[3:])
    found = file.read()
    assert found.dtype == dtype
    assert torch.equal(found, rows)
    # a mapping of a file that has no name any more, not memory of its own
    assert mapped(found, tmp_path)
    assert list(tmp_path.iterdir()) == []
    file.close()


def test_rows_that_were_not_read_are_dropped(tmp_path):
    file = RowFile(tmp_path)
    file.append(torch.zeros(2, 3))
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_rows_of_another_shape_are_refused(tmp_path):
    file = RowFile(tmp_path)
    file.append(torch.zeros(2, 3))
    with pytest.raises(DataError, match=r"rows of \(4,\) torch.float32 after \(3,\) torch.float32"):
        file.append(torch.zeros(2, 4))
    file.close()
