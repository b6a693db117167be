"""Chat templates as people publish them: none may lose a message without a word, or end in a traceback."""

from datetime import datetime

import pytest

from soft_reasoning.prompts import Prompts, Wording
from soft_reasoning.types import Problem, UserError
from tests.chat_templates import tokenizer_of

WORDING = Wording(ask="{question}")
QUESTION = "Ada has 3 apples. How many\n\nare left?"
END = "{% if add_generation_prompt %}[assistant]{% endif %}"


def looped(body, end=END):
    return "{% for m in messages %}[{{ m.role }}]" + body + "{% endfor %}" + end


TEXTS = "{% for p in m.content %}{% if p['type'] == 'text' %}{{ p['text'] }}{% endif %}{% endfor %}"
EITHER = "{% if m.content is string %}{{ m.content }}{% else %}" + TEXTS + "{% endif %}"
OF_PARTS = {
    "a loop over parts": looped(TEXTS),
    "either form": looped(EITHER),
    "joined": looped("{{ m.content | map(attribute='text') | join }}"),
    "parts of the user, text of the others": looped(
        "{% if m.role == 'user' %}" + TEXTS + "{% else %}{{ m.content + '' }}{% endif %}"
    ),
}
CHAT = (("system", "Be brief."), ("user", "Who is Ada?"), ("assistant", "A mathematician."))


def prompts_of(template, **options):
    tokenizer = tokenizer_of("qwen3")
    tokenizer.chat_template = template
    return Prompts(tokenizer, WORDING, **options)


def shown(prompts, messages=()):
    return prompts.tokenizer.decode(prompts.solve(Problem("p", QUESTION, messages=messages)).ids)


def refused(template, messages=(), **options):
    with pytest.raises(UserError) as caught:
        shown(prompts_of(template, **options), messages)
    line = str(caught.value)
    assert "\n" not in line and len(line) < 500
    return line


@pytest.mark.parametrize("name", OF_PARTS)
def test_a_template_of_content_parts_gets_them(name):
    prompts = prompts_of(OF_PARTS[name])
    assert shown(prompts) == f"[user]{QUESTION}[assistant]"
    whole = "".join(f"[{role}]{text}" for role, text in (*CHAT, ("user", QUESTION)))
    assert shown(prompts, CHAT) == f"{whole}[assistant]"
    with_system = prompts_of(OF_PARTS[name], system="Be kind.")
    assert shown(with_system) == f"[system]Be kind.[user]{QUESTION}[assistant]"
    problem = Problem("p", QUESTION)
    first = prompts.position(prompts.solve(problem), "first", problem, seed=0)
    assert prompts.tokenizer.decode(prompts.solve(problem).ids[:first]) == "[user]"


TEXT = "{{ m.content }}"
LOSING = {
    "nothing of the user": ("user", looped("{% if m.role != 'user' %}" + TEXT + "{% endif %}")),
    "another field": ("user", looped("{{ m.text }}")),
    "images only": ("user", looped("{% for p in m.content if p.type == 'image' %}<image>{% endfor %}")),
    "the parts' text as Python": ("user", looped("{{ m.content | list | string }}")),
}
LOSING_OF_CHATS = {
    "no system": ("system", looped("{% if m.role != 'system' %}" + TEXT + "{% endif %}")),
    "the system in place of the user": (
        "user",
        "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}"
        + looped(TEXT)
        + "{% endif %}",
    ),
    "parts of the user only": (
        "assistant",
        looped("{% if m.role != 'assistant' %}" + TEXTS + "{% endif %}"),
    ),
}


@pytest.mark.parametrize("name", LOSING)
def test_a_template_that_drops_the_question_is_refused(name):
    lost, template = LOSING[name]
    line = refused(template)
    assert line.startswith(
        "prompt.layout=chat: expected a chat template that shows every message, and this one"
    )
    assert f"leaves out the {lost}'s" in line and "use prompt.layout=completion" in line


@pytest.mark.parametrize("name", LOSING_OF_CHATS)
def test_a_template_that_drops_a_message_of_a_chat_is_refused(name):
    lost, template = LOSING_OF_CHATS[name]
    assert f"leaves out the {lost}'s" in refused(template, CHAT)


def test_what_a_template_drops_by_its_text_is_refused_too():
    template = looped("{{ m.content.split('left')[0] }}")
    assert "leaves out the user's text" in refused(template)
    thoughts = looped("{{ m.content.split('</think>')[-1] }}")  # an answer's thoughts are left out on purpose
    chat = (("user", "Who?"), ("assistant", "<think>Ada or Ben.</think>Ada."))
    assert shown(prompts_of(thoughts), chat) == f"[user]Who?[assistant]Ada.[user]{QUESTION}[assistant]"


def test_a_system_message_that_is_left_out_names_its_option():
    lost, template = LOSING_OF_CHATS["no system"]
    refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('No') }}{% endif %}" + looped(TEXT)
    for each in (template, refuses):
        assert refused(each, system="Be brief.").endswith("leave the system message out (prompt.system)")


def test_a_short_question_does_not_hide_a_template_that_drops_it():
    prompts = prompts_of(looped(TEXTS, "[7 or 8]" + END))
    assert prompts.tokenizer.decode(prompts.solve(Problem("p", "7")).ids) == "[user]7[7 or 8][assistant]"


BROKEN = {
    "undefined": "{{ messages[0].nothing.more }}",
    "a loop that is not closed": "{% for m in messages %}{{ m.content }}",
    "what the sandbox refuses": "{{ ''.__class__.__mro__ }}",
    "a range that is too long": "{% for i in range(10 ** 9) %}x{% endfor %}",
    "a macro without end": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "its own refusal": "{{ raise_exception('Only tools') }}",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_template_is_one_line(name):
    line = refused(BROKEN[name])
    assert line.startswith("prompt.layout=chat: this chat template rejects the prompt (")
    assert line.endswith("use prompt.layout=completion")
    assert prompts_of(BROKEN[name], layout="completion").layout == "completion"


SEVERAL = {"rag": looped("docs:" + TEXT), "tool_use": looped("tools:" + TEXT)}


def test_one_of_several_templates_is_named():
    line = refused(SEVERAL)
    assert "rag, tool_use" in line and "+prompt.chat_options.chat_template=rag" in line
    assert shown(prompts_of(SEVERAL, chat_options={"chat_template": "rag"})).startswith("[user]docs:Ada")
    assert "rag, tool_use" in refused(SEVERAL, chat_options={"chat_template": "other"})
    default = {**SEVERAL, "default": looped(TEXT)}
    assert shown(prompts_of(default)) == f"[user]{QUESTION}[assistant]"
    dated = {"default": "{{ strftime_now('%Y') }}" + looped(TEXT), "rag": "x"}
    assert shown(prompts_of(dated)).startswith("2024[user]")
    assert "rejects the prompt" in refused(
        {"default": looped(TEXT), "rag": "{% for %}"}, chat_options={"chat_template": "rag"}
    )


@pytest.mark.parametrize("form", ["%d %b %Y", "%A", "%-d %b", "%H:%M:%S", "%%", "day"])
def test_a_template_may_write_the_date_in_any_form(form):
    day = datetime(2025, 3, 9)
    prompts = prompts_of("{{ strftime_now('" + form + "') }}" + looped(TEXT), date="2025-03-09")
    assert shown(prompts).startswith(f"{day.strftime(form)}[user]")
