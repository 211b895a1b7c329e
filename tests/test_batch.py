import dataclasses

import torch

from lookact.batch import Batch, ControlInputs, Scores, SequenceInputs, TokenInputs, to_device

META = torch.device("meta")


def tensors(record):
    if isinstance(record, torch.Tensor):
        return [record]
    if isinstance(record, tuple):
        return [tensor for item in record for tensor in tensors(item)]
    if isinstance(record, dict):
        return tensors(tuple(record.values()))
    if dataclasses.is_dataclass(record):
        return tensors(tuple(getattr(record, field.name) for field in dataclasses.fields(record)))
    return []


OUTSIDE = [field.name for field in dataclasses.fields(Batch) if field.name != "inputs"]


def batch(inputs) -> Batch:
    return Batch(inputs=inputs, **{name: torch.ones(2, 3) for name in OUTSIDE})


def token_inputs() -> TokenInputs:
    pixels = (torch.zeros(4, 8), torch.zeros(0, 8))
    grids = (torch.ones(1, 3).long(), torch.zeros(0, 3).long())
    return TokenInputs(torch.zeros(2, 5).long(), torch.ones(2, 5).bool(), torch.zeros(2, 3).long(), pixels, grids)


def control_inputs() -> ControlInputs:
    images = {"front": torch.zeros(2, 4, 4, 3, dtype=torch.uint8), "wrist": torch.zeros(2, 4, 4, 3, dtype=torch.uint8)}
    return ControlInputs(torch.zeros(2, 1), torch.zeros(2, 6), images, torch.zeros(2, 7).long(), torch.zeros(2, 4, 1))


def test_every_tensor_moves_however_deep():
    moved = to_device(batch(token_inputs()), META)
    assert len(tensors(moved)) == 3 + 4 + len(OUTSIDE)
    # pixels stay until the vision encoder takes them
    assert all(pixels.device.type == "cpu" for pixels in moved.inputs.pixels)
    assert all(t.device == META for t in tensors(dataclasses.replace(moved, inputs=moved.inputs.ids)))
    assert all(grids.device == META for grids in moved.inputs.grids)


def test_control_and_sequence_inputs_move_and_keep_none():
    sequence = SequenceInputs(control_inputs(), torch.zeros(1, 2, 8), torch.zeros(2, 3).bool())
    moved = to_device(batch(sequence), META)
    assert len(tensors(moved)) == 6 + 2 + len(OUTSIDE)
    assert all(tensor.device == META for tensor in tensors(moved))
    assert moved.inputs.steps.carry is None
    assert to_device(Scores(torch.zeros(1, 1), torch.zeros(1, 1)), META).values is None


def test_moving_keeps_values_names_and_dtypes():
    before = control_inputs()
    after = to_device(before, "cpu")
    assert list(after.images) == ["front", "wrist"]
    assert after.images["front"].dtype == torch.uint8
    assert all(torch.equal(old, new) for old, new in zip(tensors(before), tensors(after)))
