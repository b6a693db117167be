"""The verifiers that conf/verifier/ names, in Python."""

from functools import partial

from soft_reasoning.rewards.judgement import NamedChoice
from soft_reasoning.rewards.presentation import OneByOne, WithoutCandidates
from soft_reasoning.rewards.released import ReleasedSolution, WithAnalyses
from soft_reasoning.rewards.verifiers import ModelVerifier

MultiGenerate = ModelVerifier
SingleGenerate = partial(ModelVerifier, name="single_generate", presentation=OneByOne())
MultiJudge = partial(ModelVerifier, name="multi_judge", judgement=NamedChoice())
SingleJudge = partial(ModelVerifier, name="single_judge", presentation=OneByOne(), judgement=NamedChoice())
Fresh = partial(ModelVerifier, name="fresh", presentation=WithoutCandidates())
ReleasedVerifier = partial(ModelVerifier, presentation=WithAnalyses(), judgement=ReleasedSolution())
