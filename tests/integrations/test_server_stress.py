"""The client's script of the docs runs. (``tests/test_soak.py`` has many clients at once.)"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("openai")

from soft_reasoning import SoftReasoner  # noqa: E402
from tests.integrations.serving import served  # noqa: E402

pytestmark = pytest.mark.slow


def test_the_script_of_the_documentation():
    script = Path(__file__).parents[2] / "docs" / "scripts" / "openai_client.py"
    with SoftReasoner.from_pretrained("demo") as reasoner, served(reasoner, api_key="k") as running:
        ended = subprocess.run([sys.executable, script, running.url, "k"], capture_output=True, text=True)
        asked = re.search(r'question = "(.*)"', script.read_text(encoding="utf-8"))[1]
        greedy = reasoner.solve(asked, method="cot")
        other = reasoner.solve(asked, k=4, rounds=1, seed=1)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("cot-demo: ") and lines[1].startswith("demo: ") and "hidden" in lines[-1]
    assert lines[0] == f"cot-demo: {greedy.text.strip()!r}, {greedy.generated_tokens} tokens"
    assert f"answer: {other.answer} of {len(other.candidates)} candidates" in lines
