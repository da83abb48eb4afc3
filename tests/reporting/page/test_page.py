"""The page of a run, as a browser shows it."""

import dataclasses
import itertools
import os
import shutil

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from placement.graphs import coarsen, opgraph
from placement.reporting.page import html
from tests.reporting import drawn

_BROWSERS = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
_BROWSER = next(filter(None, _BROWSERS), None)
_EVIL = '<script>alert(1)</script>&"'
_SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="200"><rect width="640"/></svg>'
_VIEW_BOX = "document.querySelector('#drawing').viewBox.baseVal"
# Without a browser the tests are left out; where everything has to be tried, they fail.
pytestmark = pytest.mark.skipif(
    _BROWSER is None and "CI" not in os.environ, reason="Chromium is not installed"
)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        found = playwright.chromium.launch(executable_path=_BROWSER or "chromium", args=arguments)
        yield found
        found.close()


@pytest.fixture(scope="module")
def hundreds():
    """A page of 500 operations."""
    return html.page(_summary(), details=drawn.large(500))


@pytest.fixture
def show(browser, tmp_path):
    """Opens pages; nothing may go wrong in any, nor may one ask for anything but its file."""
    contexts, troubles = [], []

    def opened(text, *, width=1200, scheme="light", touch=False):
        path = tmp_path / f"{len(contexts)}.html"
        path.write_text(text)
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, has_touch=touch
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: _note(troubles, message))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        asked = (path.as_uri(), "data:image/svg+xml")
        page.on("request", lambda r: r.url.startswith(asked) or troubles.append(r.url))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles


def _until(page, condition):
    """Waits for it; Playwright's own waiting needs an eval that the page's policy forbids."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not so after 5 s: {condition}")


def _note(troubles, message):
    if message.type in ("error", "warning"):
        troubles.append(message.text)


def _row(method, predicted_s, median=None, ratio=None, **extra):
    measured = median and {"median": median, "low": 0.98 * median, "high": 1.05 * median, "n": 9}
    return {
        "method": method,
        "predicted_s": predicted_s,
        "measured_s": measured,
        "versus_best_single_device": ratio,
        "bound_s": 0.0131,
        "gap": predicted_s and predicted_s / 0.0131 - 1,
        "search_s": 1.25,
        "evaluations": 32_000,
        "measurements": 9,
        "status": "finished",
        **extra,
    }


def _summary(**extra):
    return {
        "graph": {"name": "diamond", "num_ops": 4, "num_edges": 4},
        "devices": ["CPU [f32, 1 thread, host]", "GPU.0 [f16]"],
        "objective": "makespan",
        "seed": 3,
        "rows": [
            _row("single:CPU", 0.0163, 0.0169, 1.0),
            _row("lns", 0.0141, 0.0148, 0.8757),
            _row("heft", 0.0139, status=f"failed: compile: no kernel for {_EVIL}"),
            _row("reference:CPU [f32, all]", None, 0.0119, 0.704, reference=True),
        ],
        "best": "lns",
        "compute_s": 9.0,
        "wall_s": 61.24,
        **extra,
    }


def _diamond(**given):
    """A page with everything on it, of operations whose names are not nice."""
    details = drawn.diamond()
    names = (_EVIL, "</script><!--<script>", "op2", "op3")
    graph = dataclasses.replace(details.graph, op_names=names)
    return html.page(
        _summary(),
        details=dataclasses.replace(details, graph=graph, coarse=graph),
        figures={"Latencies & more": _SVG},
        provenance={
            "Configuration": {"graph": _EVIL, "costs": ""},
            "Environment": {"a": {"b": 0.0050152}},
        },
        **given,
    )


def _methods(page):
    return [row.split("\t")[0] for row in page.locator("#result tbody tr").all_inner_texts()]


def _listed(page):
    return page.locator("#list tbody th").all_inner_texts()


def _node(page, name):
    return page.locator(f'.node[aria-label^="{name},"]')


def _view(page):
    return page.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({_VIEW_BOX})")


def _in_sight(page, node):
    inner, outer = node.bounding_box(), page.locator("#frame").bounding_box()
    return (
        outer["x"] <= inner["x"]
        and outer["y"] <= inner["y"]
        and inner["x"] + inner["width"] <= outer["x"] + outer["width"]
        and inner["y"] + inner["height"] <= outer["y"] + outer["height"]
    )


def test_what_was_found_is_shown(show):
    page = show(_diamond())
    expect(page).to_have_title("Placement of diamond")
    expect(page.locator("h1")).to_have_text("Placement of diamond")
    verdict = "Use CPU [f32, all]: 11.90 ms. The placement of lns takes 14.80 ms."
    expect(page.locator(".verdict")).to_have_text(verdict)
    expect(page.locator("header .note")).to_have_count(0)
    assert _methods(page) == (
        ["single:CPU", "lns", "heft", "for reference, outside the placement", "CPU [f32, all] BEST"]
    )
    cells = page.locator("tr.best td").all_inner_texts()
    assert cells[:3] == ["-", "11.90 [11.66, 12.50]", "0.704"]
    expect(page.get_by_text(f"failed: compile: no kernel for {_EVIL}")).to_be_visible()
    expect(page.locator("figcaption")).to_have_text("Latencies & more")
    assert page.evaluate("document.querySelector('figure img').naturalWidth") == 640
    assert page.locator(".pairs dd").all_inner_texts() == [_EVIL, '""', "0.005015"]


def test_sections_without_content_are_left_out(show):
    page = show(html.page(_summary()))
    assert page.locator("h2").all_inner_texts() == ["Result"]
    assert page.locator("nav a").all_inner_texts() == ["Result"]


def test_a_click_on_a_header_sorts_and_another_one_turns_it_round(show):
    page = show(_diamond())
    header = page.get_by_role("columnheader", name="measured")
    for direction, expected in [("ascending", ["lns", "single:CPU"]), ("descending", None)]:
        header.get_by_role("button").click()
        expect(header).to_have_attribute("aria-sort", direction)
        methods = [method.removesuffix(" BEST") for method in _methods(page)]
        assert methods[:2] == (expected or ["single:CPU", "lns"])
        assert methods[2:] == ["heft", "for reference, outside the placement", "CPU [f32, all]"]


def test_a_table_a_graph_and_notes_first(show):
    rows = [
        {**row, "graph": graph, "seed": 3} for graph in ("a", "b") for row in _summary()["rows"]
    ]
    note = "| graph | lns |\n| --- | ---: |\n| a | **1.5** |\n\n### More <b>\n\n`text`"
    page = show(html.page(_summary(rows=rows), notes={"Comparison": note}))
    assert page.locator("h2").all_inner_texts() == ["Comparison", "Result"]
    assert page.locator("h3").all_inner_texts() == ["More <b>", "a", "b"]
    expect(page.locator("#comparison td strong")).to_have_text("1.5")
    expect(page.locator("tr.best")).to_have_count(2)
    expect(page.locator(".verdict")).to_contain_text("Over 2 graphs, ")
    expect(page.locator("#result h3 + p").first).to_contain_text("Use CPU [f32, all]: 11.90 ms.")
    expect(page.locator("h1")).to_have_text("Placement of 2 graphs")


def test_names_are_texts_and_cannot_become_markup(show):
    page = show(_diamond())
    assert _listed(page)[:2] == [_EVIL, "</script><!--<script>"]
    page.locator(".node").first.hover()
    expect(page.locator("#tip strong")).to_have_text(_EVIL)
    assert page.locator("script").count() == 2


def test_pointer_and_focus_show_what_an_operation_costs_and_when_it_runs(show):
    page = show(_diamond())
    tip = page.locator("#tip")
    expect(tip).to_be_hidden()
    page.locator(".node").nth(1).hover()
    assert tip.locator("tr").all_inner_texts() == [
        "A CPU [f32, 1 thread, host]\t4.000 ms",
        "✓ B GPU.0 [f16]\t2.000 ms",
        "predicted\t1.500 to 3.500 ms",
        "measured\t1.500 to 3.850 ms",
    ]
    page.mouse.move(1, 1)
    expect(tip).to_be_hidden()
    _node(page, "op2").focus()
    expect(tip).to_contain_text("MatMul")
    expect(tip.locator("tr").nth(1)).to_have_text("B GPU.0 [f16]not supported")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_the_legend_counts_what_is_where_and_says_how_times_were_obtained(show):
    page = show(_diamond())
    assert page.locator("#legend li").all_inner_texts() == [
        "A\nCPU [f32, 1 thread, host]: 3 operations",
        "B\nGPU.0 [f16]: 1 operation",
        "within a device",
        "to another device (2 tensors)",
    ]
    drawn_as = "All 4 operations are drawn. "
    times = "Times: simulated; measured, the median of 9 inferences."
    expect(page.locator("#drawn")).to_have_text(drawn_as + times)


def test_words_and_device_narrow_the_list(show, hundreds):
    page = show(hundreds)
    count = page.locator("#count")
    expect(count).to_have_text("500 operations")
    assert len(_listed(page)) == 200
    page.get_by_label("Name or type").fill("OP49")
    expect(count).to_have_text("11 operations of 500")
    assert _listed(page) == ["op49", *(f"op{i}" for i in range(490, 500))]
    page.get_by_label("Name or type").fill("")
    found = 0
    for label in ("A GPU.0 [described]", "B GPU.1 [described]", "C GPU.2 [described]"):
        page.get_by_label("Device").select_option(label)
        found += int(count.inner_text().split()[0])
        devices = page.locator("#list td:nth-child(4)").all_inner_texts()
        assert {text.split()[-1] for text in devices} == {label.split()[1]}
    assert found == 500


def test_the_list_has_pages(show, hundreds):
    page = show(hundreds)
    following, before = page.get_by_text("Next"), page.get_by_text("Previous")
    expect(before).to_be_disabled()
    for number in (2, 3):
        following.click()
        expect(page.locator("#page")).to_have_text(f"page {number} of 3")
        assert _listed(page)[0] == f"op{200 * (number - 1)}"
    expect(following).to_be_disabled()


def test_wheel_buttons_and_keys_zoom_and_a_drag_moves(show):
    page = show(html.page(_summary(), details=drawn.large(300)))
    page.locator("#frame").scroll_into_view_if_needed()
    page.locator("#fit").click()
    fitted = _view(page)
    box = page.locator("#frame").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 100)
    page.wait_for_timeout(300)  # a wheel that has scrolled the page first goes on with that
    widths = [fitted[2]]
    page.mouse.wheel(0, -200)
    _until(page, f"{_VIEW_BOX}.width < {widths[-1]}")
    widths.append(_view(page)[2])
    page.get_by_label("Zoom in").click()
    widths.append(_view(page)[2])
    page.locator("#frame").focus()
    page.keyboard.press("+")
    widths.append(_view(page)[2])
    assert all(later < 0.9 * earlier for earlier, later in itertools.pairwise(widths))
    x, y, width, _ = _view(page)
    page.mouse.move(box["x"] + 400, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 150, steps=4)
    page.mouse.up()
    moved = 100 * width / box["width"]
    assert _view(page)[:2] == pytest.approx([x + moved, y - moved / 2], rel=0.02)
    page.keyboard.press("ArrowLeft")
    assert _view(page)[0] < x + moved
    expect(page.locator('[aria-pressed="true"]')).to_have_count(0)
    for _ in range(4):
        page.keyboard.press("-")
    page.keyboard.press("0")
    assert _view(page) == pytest.approx(fitted)


def test_two_fingers_zoom(show):
    page = show(_diamond(), touch=True)
    page.locator("#frame").scroll_into_view_if_needed()
    box, before = page.locator("#frame").bounding_box(), _view(page)[2]
    x, y = box["x"] + box["width"] / 2, box["y"] + 40
    hand = page.context.new_cdp_session(page)

    def touch(kind, *apart):
        points = [{"x": x + distance, "y": y, "id": i} for i, distance in enumerate(apart)]
        hand.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", -40, 40)
    for apart in (60, 80):
        touch("touchMove", -apart, apart)
    touch("touchEnd")
    assert _view(page)[2] == pytest.approx(before / 2, rel=0.05)


def test_the_keyboard_reaches_the_graph_follows_edges_and_selects(show):
    page = show(_diamond())
    page.locator("#fit").focus()
    page.keyboard.press("Tab")
    expect(page.locator("#frame")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator(".node").nth(0)).to_be_focused()
    for key, reached in [("ArrowRight", 1), ("ArrowDown", 2), ("ArrowRight", 3), ("ArrowLeft", 1)]:
        page.keyboard.press(key)
        expect(page.locator(".node").nth(reached)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".node").nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#list tr[aria-current] th")).to_have_text("</script><!--<script>")
    expect(page.locator("#chosen")).to_contain_text("on GPU.0 [f16]: marked in the list.")
    expect(page.locator('.node[tabindex="0"]')).to_have_count(1)


def test_a_row_selects_its_operation_in_the_graph(show):
    page = show(html.page(_summary(), details=drawn.large(300)))
    page.locator("#list tbody button").nth(150).click()
    name = page.locator("#list tr[aria-current] th").inner_text()
    expect(page.locator("#list tr[aria-current] button")).to_be_focused()
    chosen = page.locator('.node[aria-pressed="true"]')
    expect(chosen).to_have_count(1)
    assert name == "op150"
    assert _in_sight(page, chosen)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#list tr[aria-current] th")).to_have_text("op151")


def test_a_block_lists_its_members(show):
    details = drawn.large(2_000)
    page = show(html.page(_summary(), details=details))
    drawn_blocks = page.locator(".node").count()
    assert drawn_blocks < details.coarse.num_ops
    expect(page.locator("#drawn")).to_contain_text(f"drawn as {drawn_blocks:,} blocks")
    block = page.locator('.node[aria-label*=", block,"]').first
    members = int(block.get_attribute("aria-label").split()[0])
    page.get_by_label("Device").select_option("1")
    block.dispatch_event("click")
    expect(page.locator("#count")).to_have_text(f"{members} operations of 2,000")
    assert len(_listed(page)) == members > 1
    page.locator("#members").click()
    expect(page.locator("#count")).to_have_text("2,000 operations")


def test_operations_that_were_merged_name_what_they_are_in(show):
    names = ["input", "weight", "convert", "matmul"]
    graph = opgraph.make_graph(
        name="merged",
        op_names=names,
        op_types=["Parameter", "Constant", "Convert", "MatMul"],
        senders=[0, 1, 2],
        receivers=[3, 2, 3],
        edge_bytes=[4, 4, 4],
        output_shapes=[(2, 3), (), (), ()],
    )
    page = show(html.page(_summary(), details=drawn.placed(graph, coarsen.coarsen(graph), 2)))
    wholes = page.locator("#list td:last-child").all_inner_texts()
    assert wholes[1:] == [wholes[3]] * 3
    expect(page.locator("#list td:nth-child(3)").first).to_have_text("2 x 3")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_legible_at_every_width_and_accessible(show, scheme):
    """Contrast, labels, order of headings and the rest by axe; its contrast leaves SVG out."""
    page = show(
        _diamond(notes={"Comparison": "| a | b |\n| --- | --- |\n| c | d |"}), scheme=scheme
    )
    _node(page, "op2").focus()
    _node(page, "op2").press("Enter")
    for width in (1600, 400):
        page.set_viewport_size({"width": width, "height": 800})
        expect(page.locator("#tip")).to_be_visible()
        # What is laid out anew after a change of size is so a moment later on a busy machine.
        _until(page, f"document.documentElement.scrollWidth <= {width}")
        wide = page.locator("#result .scroll.wide")
        expect(wide).to_have_count(1 if width == 400 else 0)
        expect(page.get_by_text("Scroll sideways").locator("visible=true")).to_have_count(
            page.locator(".scroll.wide").count()
        )
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    inks = page.evaluate(_INKS)
    assert len({tuple(fill) for fill, _ in inks}) == 6
    for one, other in inks:
        assert _contrast(one, other) >= 4.5


# Of all six colours of devices: that of the shape and of the text on it, 0 to 255.
_INKS = """[0, 1, 2, 3, 4, 5].map((device) => {
    const shown = document.querySelector(".legend .key");
    shown.setAttribute("class", `key d${device}`);
    const colours = [...shown.children].map((part) => getComputedStyle(part).fill);
    return colours.map((colour) => colour.match(/\\d+/g).slice(0, 3).map(Number));
})"""


def _contrast(one, other):
    """WCAG 2's ratio of two colours."""
    levels = np.array([one, other]) / 255
    linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    darker, lighter = sorted(linear @ [0.2126, 0.7152, 0.0722])
    return (lighter + 0.05) / (darker + 0.05)


def test_on_paper_everything_is_there_and_nothing_to_press(show):
    page = show(_diamond(), scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for left_out in ("nav", ".tools", ".filters", "#next", "#keys"):
        expect(page.locator(left_out)).to_be_hidden()
    for kept in ("#result table", "figure img", "#drawing", "#list", "#page", ".pairs >> nth=0"):
        expect(page.locator(kept)).to_be_visible()


def test_a_page_of_hundreds_of_operations_is_a_small_file(hundreds):
    assert len(hundreds) < 250_000


def test_a_long_label_of_a_device_does_not_widen_a_phone(show):
    details = dataclasses.replace(drawn.diamond(), devices=("CPU [f32, 1 thread, host]" * 4, "B"))
    page = show(html.page(_summary(), details=details), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_figures_are_not_white_in_the_dark(show):
    figure = "document.querySelector('figure img')"
    for scheme, expected in (("light", False), ("dark", True)):
        page = show(_diamond(), scheme=scheme)
        filtered = page.evaluate(f"getComputedStyle({figure}).filter")
        assert ("invert" in filtered) == expected


def test_a_wrong_prediction_is_noted_below_the_verdict(show):
    rows = [_row("single:CPU", 0.02, 0.02, 1.0), _row("search", 0.0213, 0.0576, 2.7)]
    page = show(html.page(_summary(rows=rows)))
    expect(page.locator(".verdict")).to_contain_text("Use CPU alone: 20.00 ms.")
    expect(page.locator("header .note")).to_contain_text("prediction for search is off by more")
