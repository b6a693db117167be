"""The console script: its commands, help and completion."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from soft_reasoning.commands import entry as cli
from soft_reasoning.commands.completion import SCRIPT, candidates
from soft_reasoning.configuration.compose import conf_dir

COMMANDS = [*cli.COMMANDS, "completion"]


def run(monkeypatch, *words):
    """What the command's module gets, in place of running it."""
    seen = []

    class Module:
        @staticmethod
        def main():
            seen.append(sys.argv[1:])

    monkeypatch.setattr(sys, "argv", ["soft-reasoning", *words])
    monkeypatch.setattr(cli, "import_module", lambda name: seen.append(name) or Module)
    cli.main()
    return seen


def test_commands_pass_their_options_on(monkeypatch):
    assert run(monkeypatch, "run", "limit=3") == ["soft_reasoning.commands.run", ["limit=3"]]
    assert run(monkeypatch, "regrade", "runs/x") == ["soft_reasoning.commands.regrade", ["runs/x"]]
    assert run(monkeypatch, "compare", "cot", "rap", "limit=3", "-m") == [
        "soft_reasoning.commands.run",
        ["methods=[cot,rap]", "limit=3", "-m"],
    ]


@pytest.mark.parametrize("words", [["fly"], ["compare", "cot"], ["compare"]])
def test_a_wrong_command_is_one_line(monkeypatch, capsys, words):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *words)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and len(said.splitlines()) == 1 and "expected" in said


def test_help_is_short_and_names_every_command_and_group(monkeypatch, capsys):
    run(monkeypatch, "--help")
    said = capsys.readouterr().out
    assert all(f"  {one} " in said for one in COMMANDS[:-1]) and len(said.splitlines()) < 16
    config = Path(conf_dir(), "config.yaml").read_text(encoding="utf-8")
    told = config.partition("template: |")[2].partition("hydra_logging")[0]
    groups = {path.name for path in Path(conf_dir()).iterdir() if path.is_dir()}
    assert not [one for one in groups if one not in told] and len(told.splitlines()) < 32


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("soft-reasoning r", ["run", "regrade"]),
        ("soft-reasoning run acq", ["acquisition="]),
        ("soft-reasoning run method=so", ["soft_reasoning"]),
        ("soft-reasoning run limit=3 +exp", ["+experiment="]),
        ("soft-reasoning run max_t", ["max_tokens="]),
        ("soft-reasoning compare cot self", ["self_consistency"]),
        ("soft-reasoning run nothing=", []),
        ("soft-reasoning show ", []),
        ("soft-reasoning s", ["serve", "show"]),
        ("soft-reasoning serve po", ["port="]),
        ("soft-reasoning serve server.max_w", ["server.max_waiting="]),
        ("soft-reasoning run server.max_w", []),
    ],
)
def test_completion(line, expected):
    assert candidates(line) == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash")
def test_completion_in_bash(tmp_path):
    script = tmp_path / "soft-reasoning"
    script.write_text(f"#!{sys.executable}\nfrom soft_reasoning.commands.entry import main\nmain()\n")
    script.chmod(0o755)
    ask = f"""{SCRIPT}
COMP_LINE="soft-reasoning run method=co" COMP_POINT=28 COMP_WORDS=(soft-reasoning run method = co)
_soft_reasoning 2>/dev/null; echo "${{COMPREPLY[@]}}" """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    package = str(Path(cli.__file__).parents[2])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": package}
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout.split() == ["constrained_finetuning", "cot", "cot_decoding", "cot_decoding_original"]
    code = "import sys; sys.argv[1:] = ['completion', 'x r']; from soft_reasoning.commands.entry import main"
    code += "; main(); assert not {'torch', 'hydra'} & {*sys.modules}"  # a key press does not wait for them
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)
