"""The verifiers that conf/verifier/ names, in Python."""

from functools import partial

from soft_reasoning.judge.model_verifier import ModelVerifier, NamedChoice, OneByOne, WithoutCandidates
from soft_reasoning.judge.released import ReleasedSolution, WithAnalyses

MultiGenerate = ModelVerifier
SingleGenerate = partial(ModelVerifier, name="single_generate", presentation=OneByOne())
MultiJudge = partial(ModelVerifier, name="multi_judge", judgement=NamedChoice())
SingleJudge = partial(ModelVerifier, name="single_judge", presentation=OneByOne(), judgement=NamedChoice())
Fresh = partial(ModelVerifier, name="fresh", presentation=WithoutCandidates())
ReleasedVerifier = partial(ModelVerifier, presentation=WithAnalyses(), judgement=ReleasedSolution())
