"""The verifiers that conf/verifier/ names, in Python."""

from functools import partial

from soft_reasoning.judge.model_verifier import ModelVerifier, NamedChoice
from soft_reasoning.judge.released import ReleasedSolution

MultiGenerate = ModelVerifier
SingleGenerate = partial(ModelVerifier, name="single_generate", presentation="one_by_one")
MultiJudge = partial(ModelVerifier, name="multi_judge", judgement=NamedChoice())
SingleJudge = partial(ModelVerifier, name="single_judge", presentation="one_by_one", judgement=NamedChoice())
Fresh = partial(ModelVerifier, name="fresh", presentation="unseen")
ReleasedVerifier = partial(ModelVerifier, presentation="with_analyses", judgement=ReleasedSolution())
