"""The page of a run, as a browser shows it."""

import dataclasses
import os
import shutil

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from placement.reporting import printable
from placement.reporting.page import html
from placement.reporting.tables import results
from tests.reporting import drawn
from tests.reporting.rows import make_row

_BROWSERS = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
_BROWSER = next(filter(None, _BROWSERS), None)
EVIL = '<script>alert(1)</script>&"'
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="200"><rect width="640"/></svg>'
# Without a browser the tests are left out; where everything has to be tried, they fail.
pytestmark = pytest.mark.skipif(
    _BROWSER is None and "CI" not in os.environ, reason="Chromium is not installed"
)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=_BROWSER or "chromium", args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def show(browser, tmp_path):
    """Opens pages; none may report an error or request anything but its file."""
    contexts, problems = [], []

    def show(text, *, width=1200, scheme="light"):
        path = tmp_path / f"{len(contexts)}.html"
        path.write_text(text)
        viewport = {"width": width, "height": 800}
        contexts.append(browser.new_context(viewport=viewport, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        allowed = (path.as_uri(), "data:image/svg+xml")
        page.on("request", lambda r: r.url.startswith(allowed) or problems.append(r.url))
        page.goto(path.as_uri())
        return page

    yield show
    for context in contexts:
        context.close()
    assert not problems


def make_page(details=None):
    """Makes a page with everything on it, of a graph with names that contain markup."""
    if details is None:
        details = drawn.diamond()
        names = (EVIL, "</script><!--<script>", "op2", "op3")
        graph = dataclasses.replace(details.graph, op_names=names)
        details = dataclasses.replace(details, graph=graph, coarse=graph)
    rows = [
        make_row("single:CPU", 0.0163, 0.0169, 1.0),
        make_row("lns", 0.0141, 0.0148, 0.8757),
        make_row("heft", 0.0139, status=f"failed: compile: no kernel for {EVIL}"),
        make_row("reference:CPU [f32, all]", None, 0.0119, 0.704, reference=True),
    ]
    summary = {
        "graph": {"name": "diamond", "num_ops": 4, "num_edges": 4},
        "devices": ["CPU [f32, 1 thread, host]", "GPU.0 [f16]"],
        **{"objective": "makespan", "starts": "single", "seed": 3, "rows": rows, "best": "lns"},
    }
    report = results.report(printable.markdown(summary))
    return html.page(report, {"Timeline & more": SVG}, details, {"config.json": f'"{EVIL}"'})


def list_names(page):
    return page.locator("#list tbody td:first-child").all_inner_texts()


def test_report_is_shown(show):
    page = show(make_page())
    expect(page).to_have_title("diamond: placing saves nothing")
    expect(page.locator("h1")).to_have_text("diamond: placing saves nothing")
    verdict = "11.90 ms. The placement of lns takes 14.80 ms, 24% more."
    expect(page.locator("h1 + p")).to_have_text(f"Use plain OpenVINO on CPU [f32, all]: {verdict}")
    expect(page.locator("tr:has(strong) td").first).to_have_text("plain CPU [f32, all]")
    expect(page.get_by_text(f"failed: compile: no kernel for {EVIL}")).to_be_visible()
    expect(page.locator("figcaption")).to_have_text("Timeline & more")
    assert page.evaluate("document.querySelector('figure img').naturalWidth") == 640
    page.locator("summary").click()
    expect(page.locator("pre")).to_have_text(f'"{EVIL}"')
    titles = ["Result", "Graph", "Operations", "Figures", "Provenance"]
    assert page.locator("h2").all_inner_texts() == titles
    # Names are not markup.
    assert list_names(page)[:2] == [EVIL, "</script><!--<script>"]
    page.locator(".node").first.hover()
    expect(page.locator("#about strong")).to_have_text(EVIL)
    assert page.locator("script").count() == 2
    bare = show(html.page("# Placement of a\n", {}, None, {}))
    assert bare.locator("h2").count() == 0


def test_hover_shows_costs_and_times(show):
    page = show(make_page())
    page.locator(".node").nth(1).hover()
    assert page.locator("#about tr").all_inner_texts() == [
        "A CPU [f32, 1 thread, host]\t4.000 ms",
        "✓ B GPU.0 [f16]\t2.000 ms",
        "predicted\t1.500 to 3.500 ms",
        "measured\t1.500 to 3.850 ms",
    ]
    page.locator(".node").nth(2).hover()
    expect(page.locator("#about tr").nth(1)).to_have_text("B GPU.0 [f16]not supported")
    assert page.locator("#legend li").all_inner_texts() == [
        "A CPU [f32, 1 thread, host]: 3 operations",
        "B GPU.0 [f16]: 1 operation",
    ]
    expect(page.locator("#drawn")).to_have_text(
        "Data flows from left to right. All 4 operations are drawn. Bold lines lead to another "
        "device (2 tensors). Times: simulated; measured, the median of 9 inferences."
    )


def test_list_is_filtered(show):
    page = show(make_page(drawn.large(500)))
    count = page.locator("#count")
    expect(count).to_have_text("500 operations")
    assert len(list_names(page)) == 200
    page.locator("#more").click()
    page.locator("#more").click()
    assert len(list_names(page)) == 500
    expect(page.locator("#more")).to_be_hidden()
    page.get_by_label("Name or type").fill("OP49")
    expect(count).to_have_text("11 operations of 500")
    assert list_names(page) == ["op49", *(f"op{i}" for i in range(490, 500))]
    page.get_by_label("Device").select_option("B GPU.1 [described]")
    assert set(page.locator("#list td:nth-child(4)").all_inner_texts()) == {"B"}


def test_graph_and_list_are_linked(show):
    """The view zooms, a row shows its node, and a block lists its members."""
    details = drawn.large(2_000)
    page = show(make_page(details))
    num_blocks = page.locator(".node").count()
    assert num_blocks < details.coarse.num_ops
    expect(page.locator("#drawn")).to_contain_text(f"drawn as {num_blocks:,} blocks")
    drawing = page.locator("#drawing")
    fitted = float(drawing.get_attribute("width"))
    page.get_by_label("Zoom in").click()
    page.get_by_label("Zoom in").click()
    assert float(drawing.get_attribute("width")) == pytest.approx(1.69 * fitted)

    page.locator("#list tbody button").nth(150).press("Enter")
    node = page.locator(".marked")
    expect(page.locator("#about strong")).to_have_text(node.get_attribute("data-name"))
    box, frame = node.bounding_box(), page.locator("#frame").bounding_box()
    assert frame["x"] <= box["x"] <= frame["x"] + frame["width"] - box["width"]
    assert frame["y"] <= box["y"] <= frame["y"] + frame["height"] - box["height"]
    page.get_by_role("button", name="Fit").click()
    assert float(drawing.get_attribute("width")) == fitted

    block = page.locator('.node[data-name*=" ops: "]').first
    members = int(block.get_attribute("data-name").split()[0])
    page.get_by_label("Device").select_option("1")
    block.dispatch_event("click")
    expect(page.locator("#count")).to_have_text(f"{members} operations of 2000")
    assert len(list_names(page)) == members > 1
    page.locator("#members").click()
    expect(page.locator("#count")).to_have_text("2,000 operations")


def test_page_is_accessible(show):
    """Contrast, labels and the rest by axe: light on a screen, dark on a phone."""
    for scheme, width in (("light", 1600), ("dark", 390)):
        page = show(make_page(), scheme=scheme, width=width)
        page.locator(".node").nth(2).dispatch_event("click")
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        result = Axe().run(page)
        assert result.violations_count == 0, result.generate_report()
    style = "getComputedStyle(document.querySelector('figure img')).filter"
    assert "invert" in page.evaluate(style)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    expect(page.locator("#zoom-in")).to_be_hidden()
