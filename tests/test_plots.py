import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.colors import to_hex
from networks import make_topology

from thanos_peer.errors import ConfigError
from thanos_peer.plots import (
    DARK,
    LIGHT,
    PlottedCurve,
    colormap,
    draw_panels,
    draw_topology,
    has_scales,
    layout,
    proportion,
    readable,
    require_matplotlib,
)
from thanos_peer.topology import families
from thanos_peer.topology.graph import Graph

SVG = "{http://www.w3.org/2000/svg}"
MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
@pytest.mark.parametrize(("family", "d"), [("ring", 8), ("star", 5), ("complete", 1)])
def test_a_topology_is_drawn_in_every_format(tmp_path, family, d, suffix):
    path = tmp_path / "pictures" / f"net{suffix}"
    draw_topology(make_topology(family=family, d=d), path)
    assert path.read_bytes().startswith(MAGIC[suffix])
    assert path.stat().st_size > 1000


def test_the_same_topology_is_drawn_as_the_same_bytes(tmp_path):
    topology = make_topology(family="erdos-renyi", d=12)
    for suffix in MAGIC:
        pictures = [tmp_path / f"{name}{suffix}" for name in "ab"]
        for picture in pictures:
            draw_topology(topology, picture)
        assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_the_picture_has_a_line_for_every_edge_and_a_dot_for_every_peer(tmp_path):
    draw_topology(make_topology(family="star", d=6), tmp_path / "net.svg")
    root = ET.parse(tmp_path / "net.svg").getroot()  # noqa: S314
    names = [group.get("id", "") for group in root.iter(f"{SVG}g")]
    lines = next(group for group in root.iter(f"{SVG}g") if group.get("id", "").startswith("LineCollection"))
    dots = next(group for group in root.iter(f"{SVG}g") if group.get("id", "").startswith("PathCollection"))
    assert len(list(lines.iter(f"{SVG}path"))) == 5
    assert len(list(dots.iter(f"{SVG}use")) or list(dots.iter(f"{SVG}path"))) >= 6
    assert any(name.startswith("text") for name in names)


@pytest.mark.parametrize("name", ["net.jpg", "net", "net.svg.gz", "net.PNG"])
def test_another_format_is_refused_with_those_that_are_known(tmp_path, name):
    with pytest.raises(ConfigError, match=r"a picture's name ends in one of \.png, \.svg, \.pdf"):
        draw_topology(make_topology(), tmp_path / name)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("d", [1, 2, 3, 4, 9, 20])
@pytest.mark.parametrize("family", families.FAMILIES)
def test_every_peer_has_a_place_of_its_own(family, d):
    edges = families.make(family, d, seed=2, radius=0.7, columns=d if d < 4 else None)
    places = layout(Graph(d, tuple(edges)))
    gaps = np.linalg.norm(places[:, None] - places, axis=-1) + 10 * np.eye(d)
    assert places.shape == (d, 2)
    assert np.isfinite(places).all()
    assert gaps.min() > 0.01


def test_a_path_is_laid_out_by_hops():
    places = layout(Graph(7, tuple(families.path(7))))
    steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    assert np.allclose(steps, 1, atol=0.05)
    assert np.linalg.norm(places[-1] - places[0]) == pytest.approx(6, rel=0.05)


def test_a_large_network_is_drawn_on_a_circle():
    places = layout(Graph(400, tuple(families.ring(400))))
    assert np.allclose(np.linalg.norm(places, axis=1), 100)


def test_panels_are_drawn_for_curves_that_reach_zero(tmp_path):
    curves = [PlottedCurve("a", [1.0, 0.1, 0.0]), PlottedCurve("b", [1.0, 0.5, 0.2])]
    draw_panels("Title", {"left": curves, "right": curves}, [tmp_path / "x.svg", tmp_path / "x.png"])
    assert ET.parse(tmp_path / "x.svg").getroot().tag == f"{SVG}svg"  # noqa: S314
    assert (tmp_path / "x.png").read_bytes().startswith(MAGIC[".png"])


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    require_matplotlib()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[plots\]' in a checkout"):
        require_matplotlib()
    with pytest.raises(ConfigError, match="pictures need matplotlib"):
        draw_topology(make_topology(), tmp_path / "net.svg")


def test_the_weights_of_few_edges_are_written_beside_them(tmp_path):
    for d, is_written in [(6, True), (40, False)]:
        draw_topology(make_topology(family="ring", d=d), tmp_path / "net.svg")
        assert ("<!-- 0.333 -->" in (tmp_path / "net.svg").read_text()) is is_written


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_words_on_a_color_can_be_read(theme):
    colors = colormap(theme.curves[0], theme.paper, theme.curves[1])
    for share in np.linspace(0, 1, 21):
        on = to_hex(colors(share))
        assert contrast(readable(colors(share), theme), on) == max(
            contrast(theme.ink, on), contrast(theme.paper, on)
        )


def test_a_drawing_is_as_tall_as_its_graph_and_never_very_flat():
    path, grid, ring = (proportion(make_topology(family=name, d=12).graph) for name in ("path", "grid", "ring"))
    assert path == 0.45 < grid < 0.9 < ring == pytest.approx(1)
    assert proportion(make_topology(family="complete", d=1).graph) == 0.45


def test_a_scale_is_drawn_only_for_what_differs():
    assert has_scales(make_topology(family="ring", d=6).graph) == (False, False)
    assert has_scales(make_topology(family="star", d=6).graph) == (True, False)
    assert has_scales(make_topology(family="path", d=6).graph) == (True, False)
    assert has_scales(make_topology(family="erdos-renyi", d=12).graph) == (True, True)
    assert has_scales(make_topology(family="complete", d=1).graph) == (False, False)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_ink_can_be_read_on_paper_and_curves_stand_out_from_it(theme):
    assert contrast(theme.ink, theme.paper) > 7
    assert all(contrast(curve, theme.paper) > 3 for curve in theme.curves)


def contrast(one, other):
    """As web pages are judged: 1 is none, 21 is black on white."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(color):
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_more_curves_than_styles_are_all_drawn(tmp_path):
    curves = [PlottedCurve(f"curve {number}", [1.0, 0.5, 0.2]) for number in range(12)]
    draw_panels("Many", {"left": curves}, [tmp_path / "many.svg"])
    drawn = (tmp_path / "many.svg").read_text()
    assert all(f"<!-- curve {number} -->" in drawn for number in range(12))
