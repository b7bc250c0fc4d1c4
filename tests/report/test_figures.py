import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest

from thanos_peer.plots import DARK, LIGHT
from thanos_peer.report.figures import (
    MOST_POINTS,
    Drawing,
    loadings_drawing,
    shorten,
    thinned,
    waiting_drawing,
)

SVG = "{http://www.w3.org/2000/svg}"


def texts(drawing: Drawing) -> str:
    return drawing.drawn(LIGHT, ".svg").decode()


def test_a_short_curve_is_drawn_whole_and_a_long_one_keeps_its_extremes_and_ends():
    assert list(thinned(np.arange(5.0))) == [0, 1, 2, 3, 4]
    values = np.random.default_rng(1).random(50_000)
    values[[31_234, 40_001]] = 9.0, -9.0
    values[100:200] = np.nan
    places = thinned(values)
    assert len(places) <= MOST_POINTS + 2
    assert {0, 31_234, 40_001, 49_999} <= set(places)
    assert all(a < b for a, b in pairwise(places))


def test_a_long_curve_without_any_value_has_places_too():
    assert len(thinned(np.full(5000, np.nan))) > 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [("x", "x"), (" a \n b ", "a b"), ("", "(no name)"), ("n" * 22, "n" * 22), ("n" * 23, "n" * 21 + "…")],
)
def test_a_long_name_is_shortened_to_a_line(name, shown):
    assert shorten(name) == shown


def test_names_are_drawn_as_they_are_and_zeros_have_no_number():
    # Mathematics, markup, and letters that the font does not have.
    names = ["$x_1$", "<b>", "基因"]
    drawn = texts(loadings_drawing(np.array([[0.5, 0.0], [0.0, -0.25], [0.0, 0.0]]), [0, 1, 2], names))
    assert "<!-- $x_1$ -->" in drawn
    assert "<!-- &lt;b&gt; -->" in drawn
    assert "<!-- 0.50 -->" in drawn
    assert "<!-- -0.25 -->" in drawn
    assert "<!-- 0.00 -->" not in drawn
    assert ET.fromstring(drawn).tag == f"{SVG}svg"  # noqa: S314


def test_both_themes_have_their_own_colors_and_the_same_picture_the_same_bytes():
    drawing = loadings_drawing(np.eye(3), [0, 1, 2], list("abc"))
    light, dark = (drawing.drawn(theme, ".svg").decode() for theme in (LIGHT, DARK))
    assert LIGHT.paper in light
    assert DARK.paper not in light
    assert DARK.paper in dark
    assert drawing.drawn(LIGHT, ".png") == drawing.drawn(LIGHT, ".png")


@pytest.mark.parametrize("d", [2, 100])
def test_waits_are_drawn_for_few_and_for_many_peers(d):
    waits = np.where(np.eye(d) > 0, np.nan, 0.5)
    waits[1, 0] = 7.25
    drawing = waiting_drawing(waits)
    assert "7.25, by peer 1 for peer 0" in drawing.caption
    drawn = texts(drawing)
    assert ("<!-- 7.2 -->" in drawn) is (d <= 10)
    assert len(drawn) < 300_000


def test_loadings_that_are_all_zero_are_drawn_too():
    drawing = loadings_drawing(np.zeros((4, 30)), [0, 1, 2, 3], list("abcd"))
    assert "0 of them not zero" in drawing.caption
    assert drawing.drawn(LIGHT, ".png").startswith(b"\x89PNG")
