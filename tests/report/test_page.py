import base64
import hashlib
import io
import json
import re
import shutil

import numpy as np
import pytest
from processes import PATIENCE, ended_afterwards, exact, start_peer, write_topology
from report.browser import Browser
from report.runs import Page, edit_json, network_run, simulated_run, with_data_files

from thanos_peer.errors import ConfigError
from thanos_peer.report import write_report

SECTIONS = ["numbers", "convergence", "network", "loadings", "sparsity", "waiting", "origin"]
MEASURES = ["objective", "feasibility", "consensus", "epsilon"]
EVIL = "<script>alert(1)</script> & \"'>"


def report(run, file=None):
    """The page of a run, and the names of its pictures."""
    page, *pictures = write_report(run, run / "report", file)
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    return Page(page.read_text(encoding="utf-8")), [picture.stem for picture in pictures]


@pytest.fixture(scope="module")
def networked(tmp_path_factory):
    run = network_run(tmp_path_factory.mktemp("page"), d=3)
    edit_json(run / "run.json", features=[EVIL, *"bcdef"], command=["thanos-peer", EVIL], topology=EVIL)
    return run, *report(run)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    run = simulated_run(tmp_path_factory.mktemp("page"), "--reference")
    return run, *report(run)


def test_a_network_run_has_every_section_and_every_figure_as_a_picture_too(networked):
    _, page, pictures = networked
    assert page.all("h2", "id") == SECTIONS
    assert page.all("a", "href") == [f"#{section}" for section in SECTIONS]
    assert pictures == [*MEASURES, "network", "loadings", "sparsity", "waiting"]
    assert len(page.all("img", "src")) == len(page.all("source", "srcset")) == len(pictures)
    assert "Not everything is here" not in page.text


def test_nothing_is_loaded_from_anywhere_and_nothing_is_executed(networked):
    _, page, _ = networked
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "embed", "form", "base")
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("style", "action", "data", "poster", "background")
            if name in ("src", "srcset", "href"):
                assert value.startswith(("data:image/svg+xml;base64,", "#"))
    assert "url(" not in page.styles
    assert "@import" not in page.styles
    assert page.open == []


def test_the_pictures_in_the_page_load_nothing_either(networked):
    _, page, _ = networked
    for uri in page.all("img", "src") + page.all("source", "srcset"):
        svg = base64.b64decode(uri.partition(",")[2]).decode()
        references = re.findall(r'href="([^"]*)"', svg)
        assert all(reference.startswith(("#", "data:image/png;base64,")) for reference in references)
        assert "<script" not in svg


def test_the_policy_allows_this_style_and_pictures_in_the_page_only(networked):
    _, page, _ = networked
    (policy,) = [a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a]
    digest = base64.b64encode(hashlib.sha256(page.styles.encode()).digest()).decode()
    rules = policy.split("; ")
    assert {"default-src 'none'", "img-src data:", f"style-src 'sha256-{digest}'"} <= set(rules)


def test_it_fits_a_phone_follows_the_color_scheme_and_speaks_to_those_who_do_not_see(networked):
    _, page, _ = networked
    assert "width=device-width, initial-scale=1" in page.all("meta", "content")
    assert set(page.all("source", "media")) == {"(prefers-color-scheme: dark)"}
    assert "@media (prefers-color-scheme: dark)" in page.styles
    assert page.all("html", "lang") == ["en"]
    assert all(len(alt) > 10 for alt in page.all("img", "alt"))
    assert len(page.all("img", "alt")) == len(page.all("img", "src"))


@pytest.mark.parametrize("made", ["networked", "simulated"])
def test_the_numbers_are_those_of_the_summary_to_the_last_digit(made, request):
    run, page, _ = request.getfixturevalue(made)
    summary = json.loads((run / "summary.json").read_text())
    shown = page.all("data", "value")
    counts = ("rounds", "seconds", "nonzeros", "messages", "payload_bytes", "variance_explained")
    for name in (*counts, "residual", *MEASURES):
        assert repr(summary[name]) in shown, name
    assert f"{summary['residual']:.2e}, relative to ||A||^2; no tolerance was set" in page.text
    assert summary["verdict"] in page.text
    assert summary["ending"] in page.text
    for name in ("reference_residual", "distance", "aligned_distance", "gap"):
        assert summary[name] is None or repr(summary[name]) in shown


def test_texts_from_files_are_shown_and_never_become_markup(networked):
    _, page, _ = networked
    assert page.text.count("<script>alert(1)</script>") == 3  # feature, command, topology file
    assert "script" not in {tag for tag, _ in page.tags}


@pytest.mark.parametrize("has_summary", [True, False])
def test_a_path_over_mu_has_its_table_and_a_figure_with_the_chosen_answer(tmp_path, has_summary):
    def change(raw):
        exact("gram")(raw)
        raw["problem"] |= {"mu": {"path": 4}, "choose": {"variance": 0.4}}

    run = network_run(tmp_path, d=3, change=change, n=6, p=2)
    facts = json.loads((run / "peers" / "0.json").read_text())
    if not has_summary:
        (run / "summary.json").unlink()
    page, pictures = report(run)
    assert pictures.count("path") == 1
    assert "Path over mu" in page.text
    assert "Chosen: the answer that is the sparsest that explains at least 0.4 of all variance." in page.text
    cells = [line.strip() for line in page.text.splitlines()]
    for row in facts["path"]:
        at = cells.index(f"{'→ ' if row['is_chosen'] else ''}{row['mu']:.4g}")
        assert cells[at + 1] == str(sum(row["nonzeros"]))
        assert cells[at + 4] == f"{row['explained']:.2%}"
    assert any("chosen: " in caption and "non-zeros, mu = " in caption for caption in cells)


def test_the_longest_wait_and_all_bytes_are_those_of_the_peers(networked):
    run, page, _ = networked
    facts = [json.loads((run / "peers" / f"{i}.json").read_text()) for i in range(3)]
    edges = [edge for fact in facts for edge in fact["edges"].values()]
    assert f"\n{max(edge['seconds_waited'] for edge in edges):.2f}\n" in page.text
    assert str(sum(edge["bytes_sent"] for edge in edges)) in page.all("data", "value")


def test_a_simulated_run_says_that_no_peer_waited_and_draws_the_distance_to_the_reference(simulated):
    _, page, pictures = simulated
    assert "This run was simulated in one process: no peer waited for another." in page.text
    assert pictures == [*MEASURES, "distance", "network", "loadings", "sparsity"]
    assert page.all("h2", "id") == SECTIONS


def test_of_a_run_that_was_killed_it_shows_what_there_is_and_says_what_is_missing(tmp_path):
    run = network_run(tmp_path, d=4)
    (run / "summary.json").unlink()
    for name in ("1.npz", "1.json", "3.npz", "3.json"):
        (run / "peers" / name).unlink()
    page, pictures = report(run)
    assert "There is no summary.json" in page.text
    assert "2 of 4 peers have no result here: 1, 3." in page.text
    assert "Done: 0, 2; what the other peers have is not in this directory." in page.text
    assert "the mean over the peers whose results are here" in page.text
    assert "2 of 4 peers do not tell how long they waited: 1, 3." in page.text
    assert "Latest round" in page.text
    assert pictures == [*MEASURES, "network", "loadings", "sparsity", "waiting"]


def test_peers_that_were_started_one_by_one_are_reported_on_with_their_topology_file(tmp_path):
    features = [f"blood {letter}" for letter in "abcdef"]

    def with_names(raw):
        with_data_files(tmp_path)(raw)
        for peer in raw["peers"]:
            rows = np.load(tmp_path / peer["data"])
            peer["data"] = f"{peer['id']}.csv"
            np.savetxt(tmp_path / peer["data"], rows, delimiter=",", header=",".join(features), comments="")

    topology = write_topology(tmp_path / "net.toml", "path", 3, max_rounds=20, change=with_names)
    out = tmp_path / "results"
    peers = [start_peer(topology, i, out) for i in range(3)]
    with ended_afterwards(*peers):
        assert [peer.wait(PATIENCE) for peer in peers] == [0, 0, 0]
    with pytest.raises(
        ConfigError, match=r"results has no topology\.toml.*name the topology file with --topology"
    ):
        write_report(out, out / "report")
    page, pictures = report(out, topology.file)
    facts = json.loads((out / "peers" / "0.json").read_text())
    assert pictures == ["network", "loadings", "sparsity", "waiting"]
    assert "3 peers, 20 rounds; all of them are done." in page.text
    assert "There is no summary.json: the numbers are those of peer 0." in page.text
    for name in ("objective", "explained_variance", "sparse_explained_variance", "feasibility", "residual"):
        assert repr(facts[name]) in page.all("data", "value"), name
    assert all(name in page.text for name in features)
    for i in range(3):
        (tmp_path / f"{i}.csv").unlink()
    page, pictures = report(out, topology.file)
    assert pictures == ["network", "loadings", "sparsity", "waiting"]
    point = f"{facts['sparse_explained_variance']:.2%} with {sum(facts['nonzeros'])} of {6 * 2}."
    assert point in page.text
    assert "only where the run has ended is known, not the curve" in page.text
    other = write_topology(tmp_path / "other.toml", "path", 3, max_rounds=21, change=with_names)
    with pytest.raises(
        ConfigError, match=rf"0\.json is of the topology {topology.digest[:16]}, not of {other.file}"
    ):
        write_report(out, out / "report", other.file)
    with pytest.raises(ConfigError, match="it has no peers/"):
        write_report(tmp_path, out / "report", topology.file)


def test_a_run_that_has_hardly_begun_has_its_network_at_least(tmp_path):
    run = simulated_run(tmp_path, d=1, family="complete")
    shutil.rmtree(run / "peers")
    (run / "summary.json").unlink()
    (run / "history.csv").write_text("")
    page, pictures = report(run)
    assert pictures == ["network"]
    assert page.all("h2", "id") == SECTIONS
    assert "history.csv holds no round: there is no convergence to draw." in page.text
    assert "there are no loadings to draw" in page.text


def test_where_the_data_is_gone_only_the_end_of_the_run_is_drawn(tmp_path):
    run = simulated_run(tmp_path, change=with_data_files(tmp_path))
    (tmp_path / "0.npy").unlink()
    page, pictures = report(run)
    assert "sparsity" in pictures
    gone = f"{tmp_path / '0.npy'} cannot be read: No such file or directory"
    assert f"a curve from ({gone}): only where the run has ended is known, not the curve." in page.text


def test_loadings_are_those_of_the_peers_where_the_prox_is_own_code(tmp_path):
    """A report runs no code of the user's, and need not: the peers have left their sparse X."""
    run = simulated_run(tmp_path, d=1, family="complete", max_rounds=2, mu=0.6)
    before = report(run)[0].text
    assert "The sparse result, the mean over all peers: zero where it is zero at every one of them." in before
    file = run / "topology.toml"
    file.write_text(file.read_text().replace('regularizer = "l1"', 'regularizer = "mine:Own"'))
    (run / "peers" / "0.json").unlink()  # it is of the other topology
    after = report(run)[0].text
    told = re.compile(r"Loadings of 6 features on 2 components, \d+ of them not zero")
    assert told.findall(after) == told.findall(before) != []


@pytest.mark.parametrize("method", ["auto", "proximal"])
def test_a_method_without_smoothing_is_reported_on_without_sigma_and_d(tmp_path, method):
    run = simulated_run(tmp_path, "--reference", change=exact(method), mu=0.5)
    page, pictures = report(run)
    summary = json.loads((run / "summary.json").read_text())
    chosen = "auto (gram), at most 504" if method == "auto" else "proximal, at most 100,000"
    assert f"{chosen} rounds, tolerance 1e-10" in page.text
    assert f"{summary['residual']:.2e}, relative to ||A||^2; tolerance 1e-10" in page.text
    assert "; stationary, not necessarily the global minimum" in page.text
    assert repr(summary["residual"]) in page.all("data", "value")
    assert "sigma" not in page.text
    assert "beta" not in page.text
    assert {"objective", "feasibility", "network", "loadings", "sparsity"} <= set(pictures)
    assert f"{summary['nonzeros']} of them not zero" in page.text
    assert "before it is made sparse" not in sparsity_of(page)
    assert "sparse result of this run" in sparsity_of(page)


def test_a_method_that_smooths_is_told_with_its_sigma(simulated):
    run, page, _ = simulated
    summary = json.loads((run / "summary.json").read_text())
    assert f"{summary['epsilon']:.2e}, with sigma = {summary['sigma']:.3g}" in page.text
    assert "thanos, beta = 1, at most 20 rounds, tolerance 0" in page.text
    assert "before it is made sparse" in sparsity_of(page)


def sparsity_of(page):
    """The picture of sparsity against variance, as text."""
    drawn = [base64.b64decode(source.partition(",")[2]).decode() for source in page.all("img", "src")]
    return next(each for each in drawn if "<!-- Sparsity against variance -->" in each)


def test_a_summary_of_another_topology_is_pointed_out(tmp_path):
    run = simulated_run(tmp_path, d=1, family="complete", max_rounds=2)
    edit_json(run / "summary.json", digest="0" * 64)
    assert "summary.json belongs to another topology" in report(run)[0].text


def test_of_many_features_the_largest_are_shown_and_the_page_stays_small(tmp_path):
    run = simulated_run(
        tmp_path, "--every", 20, family="erdos-renyi", d=32, n=200, p=8, samples=400, max_rounds=20
    )
    page, _ = report(run)
    assert "The 40 of 200 features with the largest loadings are shown" in page.text
    assert "The paler a cell, the nearer it is to zero." in page.text
    assert (run / "report" / "report.html").stat().st_size < 4_000_000


SIZES = {"phone": (390, 844), "desk": (1280, 900)}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_a_browser_draws_all_of_the_page_in_the_wanted_colors_and_loads_nothing(networked, browser, size, scheme):
    run, page, pictures = networked
    file = run / "report" / "report.html"
    look = browser.look(file, *SIZES[size], scheme, scale=0.5)
    assert all(url == file.as_uri() or url.startswith("data:image/svg+xml;base64,") for url in look.requests)
    assert file.as_uri() in look.requests
    assert (look.images, look.broken) == (len(pictures), 0)
    assert look.sources == (page.all("img", "src") if scheme == "light" else page.all("source", "srcset"))
    content, window = look.widths
    assert content <= window == SIZES[size][0]  # nothing is wider than the window
    pixels = load_pixels(look.picture)
    assert (np.median(pixels) > 200) if scheme == "light" else (np.median(pixels) < 60)
    assert len(np.unique(pixels @ [1 << 16, 1 << 8, 1])) > 50  # letters and pictures, no blank page
    rows_with_something = (np.ptp(pixels, axis=1) > 60).any(axis=1)
    assert rows_with_something.mean() > 0.5


def test_a_browser_would_tell_of_something_too_wide_and_of_a_request(networked, browser, tmp_path):
    text = (networked[0] / "report" / "report.html").read_text(encoding="utf-8")
    spoilt = re.sub("<meta http-equiv[^>]*>", "", text).replace(
        "</main>", "<pre>" + 120 * "wide" + '</pre><img src="http://elsewhere.invalid/x.png" alt=""></main>'
    )
    (tmp_path / "spoilt.html").write_text(spoilt, encoding="utf-8")
    look = browser.look(tmp_path / "spoilt.html", *SIZES["phone"], "light")
    assert look.widths[0] > SIZES["phone"][0]
    assert "http://elsewhere.invalid/x.png" in look.requests
    assert look.broken == 1


def load_pixels(picture):
    """The pixels of a PNG file, (height, width, 3), from 0 to 255."""
    from matplotlib.image import imread  # noqa: PLC0415 - an extra

    return (imread(io.BytesIO(picture))[..., :3] * 255).round().astype(int)
