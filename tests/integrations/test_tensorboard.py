"""What TensorBoard reads from the event files, also of a run that was killed and goes on."""

import pytest

from sfumato._check import InputError
from sfumato.integrations import TensorBoard
from sfumato.training import Callback

pytest.importorskip("tensorboard", reason="needs the tensorboard extra")


class Killed(Exception):
    pass


class Kill(Callback):
    """Ends the process's work after a round, as a crash would."""

    def __init__(self, after: int) -> None:
        self._after = after

    def on_round(self, row):
        if row["round"] == self._after:
            raise Killed


def steps(found, name: str) -> list[int]:
    return [event.step for event in found.Scalars(name)]


def test_the_event_file_holds_the_rounds_the_plan_and_the_statement(fit, events, tmp_path):
    result = fit(TensorBoard(tmp_path))
    found = events(tmp_path)
    rows = [row for row in result.history if "epsilon" in row]
    for name in ("epsilon", "clip_norm", "learning_rate"):
        assert steps(found, name) == [1, 2, 3, 4, 5, 6]
        assert [each.value for each in found.Scalars(name)] == pytest.approx([row[name] for row in rows])
    assert found.Scalars("statement/epsilon")[0].value == pytest.approx(result.statement.epsilon)
    assert not [name for name in found.Tags()["scalars"] if "private" in name or "validation" in name]
    text = found.Tensors("statement/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text == result.statement.text()
    assert b"noise_multiplier" in found.PluginTagToContent("hparams")["_hparams_/session_start_info"]


def test_the_times_of_the_events_do_not_tell_how_long_rounds_took(fit, events, tmp_path):
    fit(TensorBoard(tmp_path / "public"))
    fit(TensorBoard(tmp_path / "private", private=True))
    times = {kind: {e.wall_time for e in events(tmp_path / kind).Scalars("epsilon")} for kind in ("public", "private")}
    assert len(times["public"]) == 1
    assert len(times["private"]) == 6
    assert "private/seconds" in events(tmp_path / "private").Tags()["scalars"]


@pytest.mark.parametrize(("after", "before"), [(5, [1, 2, 3, 4, 5]), (1, [1])])  # saved after 4, and before the first
def test_a_run_that_was_killed_and_goes_on_has_each_step_once(fit, events, tmp_path, after, before):
    log = {"public_evaluation": True}
    with pytest.raises(Killed):
        fit(TensorBoard(tmp_path / "tb", **log), Kill(after), out=tmp_path / "run")
    assert steps(events(tmp_path / "tb"), "epsilon") == before
    fit(TensorBoard(tmp_path / "tb", **log), out=tmp_path / "run", resume=True)
    fit(TensorBoard(tmp_path / "whole", **log))
    resumed, whole = events(tmp_path / "tb"), events(tmp_path / "whole")
    for name in ("epsilon", "learning_rate", "validation/accuracy", "statement/epsilon"):
        told = [(event.step, event.value) for event in whole.Scalars(name)]
        assert [(event.step, event.value) for event in resumed.Scalars(name)] == told
    assert steps(resumed, "validation/accuracy") == [0, 3, 6]
    assert "_hparams_/session_start_info" in resumed.PluginTagToContent("hparams")


def test_a_run_that_is_over_already_is_not_logged_twice(fit, events, tmp_path):
    for resume in (False, True):
        fit(TensorBoard(tmp_path / "tb"), out=tmp_path / "run", resume=resume)
    assert steps(events(tmp_path / "tb"), "statement/epsilon") == [6]
    assert steps(events(tmp_path / "tb"), "epsilon") == [1, 2, 3, 4, 5, 6]


def test_a_new_run_hides_what_an_earlier_one_wrote_into_its_folder(fit, events, tmp_path):
    fit(TensorBoard(tmp_path), steps=8)
    fit(TensorBoard(tmp_path))
    assert steps(events(tmp_path), "epsilon") == [1, 2, 3, 4, 5, 6]


def test_no_two_event_files_of_a_folder_begin_in_the_same_second(fit, tmp_path):
    for _ in range(3):
        fit(TensorBoard(tmp_path), steps=1)
    seconds = [file.name.split(".")[3] for file in tmp_path.glob("events.out.tfevents.*")]
    assert len(set(seconds)) == len(seconds) == 3


def test_a_file_in_the_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "notes").write_text("")
    with pytest.raises(InputError, match=r"needs a folder, and .*notes is a file"):
        TensorBoard(tmp_path / "notes" / "run")
