"""Pictures of flights: each in its environment, the failed ones marked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.colors import same_color

from pacbayes_control.report.pictures import BLUE, ORANGE
from pacbayes_control.robots import Swing
from pacbayes_control.robots.swing.pictures import ACROSS, flights_figure


def test_each_flight_has_a_field_of_its_own_and_says_how_it_failed():
    path = np.array([[0.0, 0.0], [0.1, 1.0], [0.3, 2.0]])
    flown: Any = SimpleNamespace(
        task=Swing(),
        flights=[SimpleNamespace(cost=0, end="completed"), SimpleNamespace(cost=1, end="contact")],
        paths=[path, path],
        fields=np.array([[[-1.0, 5.0, 0.3]], [[1.0, 6.0, 0.4]]]),
    )
    figure = flights_figure(flown)
    good, failed, *empty = figure.axes
    assert [good.get_title(), failed.get_title()] == ["1", "2: contact"]
    assert len(figure.axes) == ACROSS
    assert not any(axis.axison for axis in empty)
    assert any(same_color(line.get_color(), BLUE) for line in good.lines)
    assert not any(same_color(line.get_color(), ORANGE) for line in good.lines)
    marked = [line for line in failed.lines if line.get_marker() == "x"]
    assert [tuple(line.get_xydata()[0]) for line in marked] == [(0.3, 2.0)]
