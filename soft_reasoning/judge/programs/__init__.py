"""Programs as judges: the model writes them from the question alone, and a sandbox runs them."""

from soft_reasoning.judge.programs.sandbox import Outcome, Sandbox
from soft_reasoning.judge.programs.verifier import ProgramVerifier
from soft_reasoning.judge.programs.writing import TASK, Program, Programs

__all__ = ["TASK", "Outcome", "Program", "ProgramVerifier", "Programs", "Sandbox"]
