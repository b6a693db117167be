"""Special tokens around a prompt: those of the tokenizer once at its beginning, none at its end."""

import pytest
from tokenizers.processors import TemplateProcessing

from soft_reasoning.prompts import Prompts, Wording
from soft_reasoning.types import Problem
from tests.chat_templates import tokenizer_of

TEXT = "1 + 1 is"
KINDS = {
    "none": ([], []),
    "bos": (["<s>"], []),
    "bos and eos": (["<s>"], ["</s>"]),
    "two at the beginning": (["[gMASK]", "<sop>"], []),
    "the same at both ends": (["</s>"], ["</s>"]),
}


@pytest.fixture(params=KINDS)
def kind(request):
    before, after = KINDS[request.param]
    tokenizer = tokenizer_of("mistral")
    tokenizer.chat_template = None
    tokenizer.add_special_tokens({"additional_special_tokens": [*{*before, *after}]})
    if before:
        tokenizer.bos_token = before[0]
    if after:
        tokenizer.eos_token = after[0]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=" ".join((*before, "$A", *after)),
        special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in {*before, *after}],
    )
    return tokenizer, "".join(before), "".join(after)


def given(tokenizer, prompt):
    problem = Problem("p", "?", given=prompt)
    return list(Prompts(tokenizer, Wording(ask="{question}")).solve(problem).ids)


def test_a_given_text_begins_once_and_does_not_end(kind):
    tokenizer, before, _ = kind
    bare = tokenizer.encode(before + TEXT, add_special_tokens=False)
    assert given(tokenizer, TEXT) == given(tokenizer, before + TEXT) == bare
    assert given(tokenizer, f" {before}{TEXT}") != bare  # not its beginning


def test_what_a_given_text_holds_by_itself_stays(kind):
    tokenizer, before, after = kind
    turns = f"{before}{TEXT}{after}{before}{TEXT}{after}"
    assert given(tokenizer, turns) == tokenizer.encode(turns, add_special_tokens=False)
    twice = before + before + TEXT
    assert given(tokenizer, twice) == tokenizer.encode(twice, add_special_tokens=False)
    ids = tokenizer.encode(twice)
    assert given(tokenizer, tuple(ids)) == ids  # token ids are the caller's


def test_a_completion_prompt_begins_once_and_ends_with_its_cue(kind):
    tokenizer, before, _ = kind
    for head in ("", before):
        prompts = Prompts(tokenizer, Wording(ask="{question}\n", head=head, cue="Answer:"))
        problem = Problem("p", TEXT)
        prompt = prompts.solve(problem)
        assert tokenizer.decode(prompt.ids) == f"{before}{TEXT}\nAnswer:"
        first = prompts.position(prompt, "first", problem, seed=0)
        assert tokenizer.decode(prompt.ids[:first]) == before
        assert tokenizer.decode(prompt.ids[len(prompt.ids) - prompt.cue :]) == "Answer:"


def test_a_chat_s_prompt_has_what_its_template_writes(kind):
    tokenizer, before, _ = kind
    tokenizer.chat_template = "{{ '" + before + "' }}{% for m in messages %}[{{ m.content }}]{% endfor %}"
    prompt = Prompts(tokenizer, Wording(ask="{question}")).solve(Problem("p", TEXT))
    assert tokenizer.decode(prompt.ids) == f"{before}[{TEXT}]"
