"""What a manifest says of a run."""

from soft_reasoning.lab.runs.manifest import method_name


def test_a_method_without_a_name_has_that_of_its_class():
    assert method_name({"method": {"_target_": "mine.methods.LongestOf"}}) == "LongestOf"
    assert method_name({"method": {"_target_": "mine.LongestOf", "name": "longest.v2"}}) == "longest.v2"
