"""A table that grows: what is read at each look, and what is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pacbayes_control.trials.following import PATIENCE, follow
from pacbayes_control.trials.logs.options import LogOptions

HEADER = "policy,environment,success\n"


class Day:
    """A day of trials: what is in the table after each pause."""

    def __init__(self, file: Path, *contents: str | None) -> None:
        self.file, self.coming = file, iter(contents)
        self.pauses = 0

    def sleep(self, _: float) -> None:
        self.pauses += 1
        content = next(self.coming)  # StopIteration ends the day
        if content is not None:
            self.file.write_text(content)


def looks(file: Path, *contents: str | None) -> Iterator[int]:
    """The number of trials at each look."""
    day = Day(file, *contents)
    with suppress(RuntimeError):  # that the day has ended
        for trials in follow(file, LogOptions(), sleep=day.sleep):
            yield len(trials)


def test_a_table_is_read_again_when_it_has_changed(tmp_path: Path):
    file = tmp_path / "today.csv"
    file.write_text(HEADER)
    one, two = HEADER + "a,s1,1\n", HEADER + "a,s1,1\nb,s1,0\n"
    assert list(looks(file, one, None, None, two, None)) == [0, 1, 2]


def test_a_table_that_is_not_there_yet_and_half_a_line_are_waited_for(tmp_path: Path):
    file = tmp_path / "today.csv"
    half, whole = HEADER + "a,s1,1\nb,s1", HEADER + "a,s1,1\nb,s1,1\n"
    assert list(looks(file, None, half, None, whole)) == [1, 2]


def test_rows_of_a_schedule_are_to_come_until_they_have_an_outcome(tmp_path: Path):
    file = tmp_path / "today.csv"
    file.write_text(HEADER + "a,s1,1\nb,s1,\nb,s2,\n")
    assert list(looks(file, HEADER + "a,s1,1\nb,s1,0\nb,s2,\n")) == [1, 2]


def test_a_table_is_unreadable_for_a_moment_and_then_not(tmp_path: Path):
    file = tmp_path / "today.csv"
    good = HEADER + "a,s1,1\nb,s1,0\n"
    file.write_text(good)
    assert list(looks(file, "policy,envir\n", None, good + "a,s2,1\n")) == [2, 3]


def test_an_error_that_lasts_is_raised(tmp_path: Path):
    file = tmp_path / "today.csv"
    file.write_text(HEADER + "a,s1,maybe\n")
    day = Day(file, *[None] * 10)
    with pytest.raises(ValueError, match="maybe"):
        next(follow(file, LogOptions(), sleep=day.sleep))
    assert day.pauses == PATIENCE - 1


def test_a_skipped_trial_is_missing_and_not_to_come(tmp_path: Path):
    file = tmp_path / "today.csv"
    file.write_text(HEADER + "a,s1,\nb,s1,0\n")
    with pytest.raises(ValueError, match="the outcome of “a” is missing"):
        next(follow(file, LogOptions(), sleep=Day(file, *[None] * 10).sleep))


def test_a_folder_cannot_be_followed(tmp_path: Path):
    with pytest.raises(ValueError, match="is a folder: give the table"):
        next(follow(tmp_path, LogOptions()))


@pytest.mark.parametrize(
    ("later", "told"),
    [
        ("a,s1,1\nb,s1,0\na,s2,1\n", False),
        ("a,s1,1\nb,s1,1\na,s2,1\n", True),  # another outcome
        ("a,s1,1\na,s2,1\nb,s2,1\n", True),  # one trial was removed
        ("a,s1,1\n", True),
    ],
)
def test_earlier_trials_that_are_changed_or_removed_are_told(
    tmp_path: Path, later: str, told: bool
):
    file = tmp_path / "today.csv"
    file.write_text(HEADER + "a,s1,1\nb,s1,0\n")
    day, lines = Day(file, HEADER + later, HEADER + later + "b,s3,1\n"), []
    with suppress(RuntimeError):
        for trials in follow(file, LogOptions(), sleep=day.sleep):
            lines.append("earlier trials were changed or removed" in trials.understood)
    assert lines == [False, told, told]
