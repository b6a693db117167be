"""How fast report.html opens: python experiments/bench_viewer.py RUN [--problems 1319].

Repeats the records of a finished run under new ids, writes their page, and opens it from disk in headless
Chromium. Prints the page's size, the CPU time to write it, and what performance.now() says when the list of
problems is shown. Needs Chromium, its chromedriver and selenium.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from soft_reasoning.answers import Grader
from soft_reasoning.reports.viewer.run import write_run
from soft_reasoning.runs.files import MANIFEST, PAGE, PAGE_DATA, SAMPLES, read_records


def repeated(run: Path, folder: Path, problems: int) -> set[str]:
    """A run of ``problems`` problems with the records of ``run`` over and over; their ids."""
    shutil.copy(run / MANIFEST, folder)
    records, ids = list(read_records(run)), set()
    with open(folder / SAMPLES, "w") as file:
        for i in range(problems):
            name = f"problem-{i}"
            file.write(json.dumps({**records[i % len(records)], "doc_id": name}) + "\n")
            ids.add(name)
    return ids


def milliseconds(page: Path) -> tuple[int, int]:
    """Until the list is shown: all, and that of it which the page's own script took."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory() as profile:
        for one in ("--headless=new", "--disable-gpu", f"--user-data-dir={profile}"):
            options.add_argument(one)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")
        driver = webdriver.Chrome(
            options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
        )
        try:
            driver.get(page.as_uri())
            script = "return document.documentElement.dataset.ready"
            WebDriverWait(driver, 60).until(lambda d: d.execute_script(script))
            took = driver.execute_script(
                "const d = document.documentElement.dataset; return [d.ready, d.took]"
            )
        finally:
            driver.quit()
    return int(took[0]), int(took[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--problems", type=int, default=1319)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = repeated(given.run, folder, given.problems)
        began = time.process_time()
        write_run(folder, "bench", [], ids, Grader())
        print(f"written in {time.process_time() - began:.1f} s of CPU time")
        beside = sum(path.stat().st_size for path in (folder / PAGE_DATA).glob("*"))
        sizes = [(folder / one).stat().st_size / 2**20 for one in (SAMPLES, PAGE)]
        print(f"records {sizes[0]:.1f} MiB, page {sizes[1]:.2f} MiB, beside it {beside / 2**20:.2f} MiB")
        for _ in range(given.repeats):
            everything, own = milliseconds(folder / PAGE)
            print(f"{len(ids)} problems shown after {everything} ms, {own} ms of them the page's script")


if __name__ == "__main__":
    main()
