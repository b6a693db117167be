"""The viewer's pages in Chromium, opened from disk: what a reader sees, clicks and types."""

import os
import shutil
from pathlib import Path

import pytest
from viewed import write_all

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
webdriver = pytest.importorskip("selenium.webdriver")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait

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


class Page:
    """A page in Chromium; expects no message in the console, unless a test says so."""

    def __init__(self, chromium):
        self.driver = chromium
        chromium.get_log("browser")

    def open(self, path: Path, address=""):
        self.driver.get("about:blank")
        self.driver.get(path.as_uri() + address)
        return self

    def wait(self, script):
        wait = WebDriverWait(self.driver, 30)
        return wait.until(lambda driver: driver.execute_script(script), f"waited for {script}")

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

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

    def problem(self, name):
        self.wait(f"return document.querySelector('nav b')?.textContent === '{name}'")

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


def test_the_list_filters_searches_and_sorts(page, runs):
    page.open(runs / "search" / "report.html")
    assert shown(page) == ["p0", "p1", "p2", "p3", "p4"]
    chips = ["all", "correct 2 (40.0 %)", "covered but lost 1 (20.0 %)", "not covered 1 (20.0 %)"]
    assert page.texts(".tools button") == [*chips, "unparsed 1 (20.0 %)"]
    page.click(".tools button", "correct")
    assert shown(page) == ["p0", "p1"]
    page.click(".tools button", "all")
    page.click(".problems th", "problem")
    assert shown(page) == ["p4", "p3", "p2", "p1", "p0"]
    page.click(".problems th", "correct candidates")
    assert shown(page)[-1] == "p0"
    page.keys("/")
    assert page.js("return document.activeElement.type") == "search"
    webdriver.ActionChains(page.driver).send_keys("question p3").perform()
    assert shown(page) == ["p3"]


def shown(page):
    return page.js(
        "return [...document.querySelectorAll('.problems tbody tr')].filter((r) => !r.hidden)"
        ".map((r) => r.cells[0].textContent)"
    )


def test_a_problem_is_opened_and_left_by_keys(page, runs):
    page.open(runs / "search" / "report.html", "#p0")
    page.problem("p0")
    assert page.texts(".rounds section > h3") == ["Round 1", "Round 2"]
    assert len(page.texts(".rounds article")) == 4
    assert any("<img src=x" in text for text in page.texts(".verifier pre"))  # hostile text is text
    assert page.js("return document.images.length") == 0 and "owned" != page.driver.title
    page.keys("j")
    page.problem("p1")
    page.keys("k")
    page.problem("p0")
    page.keys(webdriver.Keys.ESCAPE)
    page.wait("return !document.querySelector('#list').hidden")
