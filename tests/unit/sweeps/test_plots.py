"""The pictures of a sweep's report."""

import pytest

from sparring.evaluation.intervals import Interval
from sparring.sweeps.plots import learning_curves, settings_beside

SCORE = Interval(mean=0.5, half_width=0.1, by_seed=(0.4, 0.6))


@pytest.mark.parametrize("count", [1, 2, 9])
def test_the_points_of_a_setting_are_off_the_frame(count: int) -> None:
    figure = settings_beside({f"setting {number}": SCORE for number in range(count)}, "score")
    figure.canvas.draw()
    (axis,) = figure.axes
    frame = axis.get_window_extent()
    heights = [axis.transData.transform((0.5, place))[1] for place in range(count)]
    assert all(frame.y0 + 8 < height < frame.y1 - 8 for height in heights)
    assert heights == sorted(heights, reverse=True), "the first setting is at the top"


def test_steps_are_whole_numbers() -> None:
    points = [(0, SCORE), (1, SCORE)]
    figure = learning_curves({"a": {"validation": points, "training": points}}, "score")
    figure.canvas.draw()
    for axis in figure.axes:
        assert all(float(tick).is_integer() for tick in axis.get_xticks())
