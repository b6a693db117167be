"""The viewer's pages in Chromium, opened from disk: what a reader sees, clicks and types."""

import os
import shutil
import time
from pathlib import Path

import pytest
from viewed import GRADER, problem, searched, write, write_all

from soft_reasoning.lab.reports.viewer.page import write_page
from soft_reasoning.lab.runs.records import read_outcomes
from soft_reasoning.types import Problem

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
webdriver = pytest.importorskip("selenium.webdriver")
PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="700" height="70"><defs></defs>'
    '<rect width="700" height="70" style="fill: #16181d"/></svg>'
)
FIRST_PIXEL = """
const context = document.createElement('canvas').getContext('2d');
context.drawImage(document.querySelector('.pictures img'), 0, 0);
return [...context.getImageData(5, 5, 1, 1).data];
"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its chromedriver is installed"),
]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
        "--window-size=1280,900",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


LINES_OF_WORDS = """
const lines = [];
for (const cell of document.querySelectorAll(arguments[0])) {
  const nodes = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (nodes.nextNode()) for (const word of nodes.currentNode.data.matchAll(/\\S+/g)) {
    const range = document.createRange();
    range.setStart(nodes.currentNode, word.index);
    range.setEnd(nodes.currentNode, word.index + word[0].length);
    lines.push(new Set([...range.getClientRects()].map((box) => box.top)).size);
  }
}
return lines;
"""
"""On how many lines each word of the elements stands."""


class Page:
    """A page in Chromium; expects no message in the console, unless a test says so."""

    def __init__(self, chromium, width=1280, dark=False):
        self.driver = chromium
        media = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        size = {"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": width < 500}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        chromium.get_log("browser")

    def open(self, path: Path, address=""):
        self.driver.get("about:blank")
        self.driver.get(path.as_uri() + address)
        self.wait("return document.documentElement.dataset.ready")
        return self

    def wait(self, script):
        until = time.monotonic() + 30
        while not (value := self.js(script)):
            assert time.monotonic() < until, f"waited for {script}; the page shows {self.text('body')[:500]}"
            time.sleep(0.05)
        return value

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def text(self, where):
        return self.js("return document.querySelector(arguments[0])?.innerText", where)

    def texts(self, where):
        return self.js("return [...document.querySelectorAll(arguments[0])].map((n) => n.innerText)", where)

    def click(self, where, text=""):
        return self.js(
            "const element = [...document.querySelectorAll(arguments[0])].find((n) => n.textContent.includes("
            "arguments[1])); element.click()",
            where,
            text,
        )

    def keys(self, *keys):
        for key in keys:
            self.js("document.activeElement.blur()")
            webdriver.ActionChains(self.driver).send_keys(key).perform()

    def ids(self):
        return self.texts(".problems tbody .c-id")

    def problem(self, name):
        self.wait(f"return document.querySelector('.problem .bar h1')?.textContent === '{name}'")

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_all(folder)
    return folder


@pytest.fixture
def page(chromium):
    page = Page(chromium)
    yield page
    assert page.complaints() == []


@pytest.mark.parametrize("width", [400, 1280])
def test_words_of_answers_stay_whole(chromium, tmp_path, width):
    asked = [Problem(f"p{i}", "How many? " * 40, "William Shakespeare", "text") for i in range(2)]
    results = [searched(answer, [answer]) for answer in (None, '{"age": 34, "name": "Ann"}')]
    page = Page(chromium, width).open(write(tmp_path, dict(zip(asked, results, strict=True))) / "report.html")
    assert page.js(LINES_OF_WORDS, ".c-answer, .c-gold") == [1] * (2 + 2 + 4 + 2)
    assert page.js("return document.documentElement.scrollWidth") <= width


def test_the_list_filters_searches_and_sorts(page, runs):
    page.open(runs / "search" / "report.html")
    assert page.ids() == ["p0", "p1", "p2", "p3", "p4"]
    assert page.texts(".pill") == ["correct", "correct", "lost", "not covered", "unparsed"]
    assert page.texts(".chip b") == ["5", "2", "3", "1", "1", "3"]
    for label, ids in {
        "covered but lost": ["p2"],
        "unparsed": ["p4"],
        "wrong": ["p2", "p3", "p4"],
        "all": ["p0", "p1", "p2", "p3", "p4"],
    }.items():
        page.click(".chip", label)
        assert page.ids() == ids
    page.click(".problems th button", "problem")
    assert page.ids() == ["p4", "p3", "p2", "p1", "p0"]
    page.click(".problems th button", "correct candidates")
    assert page.ids()[-1] == "p1"
    page.keys("/")
    assert page.js("return document.activeElement.type") == "search"
    webdriver.ActionChains(page.driver).send_keys("question p3").perform()
    assert page.ids() == ["p3"] and "1 problem of 5" in page.text(".told")
    page.open(runs / "search" / "report.html", "#show=wrong&sort=-id")
    assert page.ids() == ["p4", "p3", "p2"]


def test_a_problem_shows_all_that_led_to_its_answer(page, runs):
    page.open(runs / "search" / "report.html", "#problem=p0")
    page.problem("p0")
    assert [text.split("\n") for text in page.texts(".round > h3")] == [
        ["Round 1", "mean reward 0.05"],
        ["Round 2", "mean reward 0.25"],
    ]
    cards = page.texts(".rounds .card")
    assert len(cards) == 4 and "expected" not in cards[0].split("near")[0]
    for part in ("reward\n0.30", "verdict\n1.00", "coherence\n0.500", "expected\n0.25 ± 0.50", "␣Here"):
        assert part in cards[3], cards[3]
    assert "same text as candidate 1" in cards[2]
    assert page.texts(".soft") == ["soft token"]
    assert page.text(".votes li.chosen .answer").startswith("3") and "verifier twice" in page.text(".votes")
    assert any("<img src=x" in text for text in page.texts(".verifier pre"))  # hostile text is text
    assert page.js("return document.images.length") == 0 and "owned" != page.driver.title
    page.click(".rounds .card .repeats button", "candidate 1")
    page.wait("return document.querySelector('#candidate-1').classList.contains('found')")
    page.js(
        "const s = document.querySelector('.options select'); s.value = '2';"
        "s.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    assert [t.strip() for t in page.texts(".rounds .card:not(.copy) .parts")] == ["3."]
    page.js("document.querySelector('.options input').click()")
    assert "same text as" not in page.text(".rounds")


def test_nothing_is_asked_of_a_network(page, runs):
    page.open(runs / "search" / "report.html")
    assert page.js("return performance.getEntriesByType('resource').length") == 0  # no file beside it either
    page.js("fetch('https://example.org').catch((e) => { window.refused = String(e); })")
    page.wait("return window.refused")
    page.js(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1';document.body.append(s)"
    )
    assert page.js("return window.ran") is None
    assert len(refusals := page.complaints()) >= 2 and all("Content Security" in text for text in refusals)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_their_window_in_both_themes(chromium, runs, width, dark):
    page = Page(chromium, width, dark)
    for address in ("", "#problem=p0"):
        page.open(runs / "search" / "report.html", address)
        page.wait("return document.querySelector('.problem, .problems')")
        assert page.js("return document.documentElement.scrollWidth") <= width, address
        back, letters = page.js(
            "const s = getComputedStyle(document.documentElement); return [s.backgroundColor, s.color].map("
            "(c) => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0))"
        )
        assert (back < 150 and letters > 600) if dark else (back > 600 and letters < 150)
    assert page.complaints() == []


def test_formulas_are_drawn_and_prices_are_not(chromium, tmp_path):
    text = r"So $x=\frac{1}{2}^2$, \boxed{\sqrt{3}}, \(\sum_{i=1}^n i\), $5 or $10, but \(\nonsense{x}\)."
    result = searched("3", ["3", "3"], verifier="3", texts=[text, f"{text} Again."])
    page = Page(chromium).open(write(tmp_path, {problem(1): result}) / "report.html", "#problem=p1")
    count = "return document.querySelectorAll(arguments[0]).length"
    assert page.js(count, "#candidate-1 math") == 3
    assert page.js(count, "#candidate-1 mfrac, #candidate-1 menclose msqrt") == 2
    shown = page.text("#candidate-1 .text")
    assert "$5 or $10" in shown and r"\(\nonsense{x}\)" in shown and "frac" not in shown


def test_pictures_and_the_command_stand_in_the_page(chromium, tmp_path):
    folder = write(tmp_path, {problem(1): searched("3", ["3", "3"], verifier="3")})
    (folder / "a.svg").write_text(PICTURE)
    manifest = {"config": {}, "command": "the command k=2"}
    write_page(folder, "one", manifest, GRADER.name, read_outcomes(folder), [], {"After each round": "a.svg"})
    page = Page(chromium, width=390).open(folder / "report.html")
    assert page.text(".command") == "the command k=2"
    picture = "const img = document.querySelector('.pictures img'); return img.complete && img.naturalWidth"
    assert page.wait(picture) == 700
    colours = []
    for dark in (False, True):
        page = Page(chromium, width=390, dark=dark).open(folder / "report.html")
        page.wait(picture)
        assert page.js("return document.documentElement.scrollWidth") <= 390
        colours.append(page.js(FIRST_PIXEL))
    assert colours == [[22, 24, 29, 255], [231, 233, 238, 255]]  # the page's letters
