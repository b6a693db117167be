"""Tokenizers with the published chat templates: what each renders for messages of text, without tools.

Gemma 2 is as published. Llama 3.2, Qwen 3 and Mistral 7B v0.3 are without the branches
for tools and thoughts. All were compared with the published texts on one message, on one
after a system message, and on three turns.
"""

from types import SimpleNamespace

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

LLAMA_32 = (
    "{{- bos_token }}{%- if not date_string is defined %}{%- if strftime_now is defined %}"
    "{%- set date_string = strftime_now('%d %b %Y') %}{%- else %}{%- set date_string = '26 Jul 2024' %}"
    "{%- endif %}{%- endif %}{%- if messages[0]['role'] == 'system' %}"
    "{%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}"
    "{%- else %}{%- set system_message = '' %}{%- endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n' }}"
    "{{- 'Today Date: ' + date_string + '\n\n' + system_message + '<|eot_id|>' }}"
    "{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' "
    "+ message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
QWEN_3 = (
    "{%- if messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}"
    '{%- if message.role != "system" or not loop.first %}'
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"
)
MISTRAL = (
    '{%- if messages[0]["role"] == "system" %}{%- set system_message = messages[0]["content"] %}'
    "{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}"
    '{{- bos_token }}{%- for message in loop_messages %}{%- if message["role"] == "user" %}'
    "{%- if loop.last and system_message is defined %}"
    '{{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}'
    '{%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}'
    '{%- elif message["role"] == "assistant" %}{{- " " + message["content"]|trim + eos_token}}'
    "{%- endif %}{%- endfor %}"
)
GEMMA_2 = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception("
    "'Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
    "{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
GEMMA_4 = (
    "{{- bos_token -}}{%- if enable_thinking is defined and enable_thinking"
    " or messages[0]['role'] == 'system' -%}"
    "{{- '<|turn>system\\n' -}}"
    "{%- if enable_thinking is defined and enable_thinking -%}{{- '<|think|>\\n' -}}"
    "{%- endif -%}{{- '<turn|>\\n' -}}{%- endif %}"
    "{%- for message in messages -%}{%- if message['role'] != 'system' -%}"
    "{{- '<|turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n'"
    " + message['content'].split('<channel|>')[-1] | trim + '<turn|>\\n' -}}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|turn>model\\n' -}}"
    "{%- if not enable_thinking | default(false) -%}{{- '<|channel>thought\\n<channel|>' -}}"
    "{%- endif -%}{%- endif -%}"
)
GPT_OSS = (
    "{{- '<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\\n\\n"
    "Reasoning: ' + (reasoning_effort or 'medium') + '\\n\\n"
    "# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>' }}"
    "{%- for message in messages %}{%- if message.role == 'assistant' %}"
    "{%- if message.thinking %}"
    "{{- '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' }}"
    "{%- endif %}{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}"
    "{%- else %}{{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}{%- endif %}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"
)
MAGISTRAL = (
    "{{- bos_token + '[SYSTEM_PROMPT]First draft your thinking process (inner monologue). "
    "Your thinking process must follow the template below:"
    "[THINK]Your thoughts.[/THINK]Here, provide a response.[/SYSTEM_PROMPT]' }}"
    "{%- for message in messages %}{%- if message['role'] == 'user' %}"
    "{{- '[INST]' + message['content'] + '[/INST]' }}{%- else %}"
    "{{- message['content'] + eos_token }}{%- endif %}"
    "{%- endfor %}"
)
"""These three are what the published ones say of thoughts."""
CHATML = ("<|im_start|>", "<|im_end|>")
LLAMA = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
TURNS = ("<start_of_turn>", "<end_of_turn>")
FAMILIES = {
    "llama3.2": (LLAMA_32, "<|begin_of_text|>", LLAMA),
    "qwen3": (QWEN_3, None, (*CHATML, "<think>", "</think>")),
    "mistral": (MISTRAL, "<s>", ("[INST]", "[/INST]", "</s>")),
    "gemma2": (GEMMA_2, "<bos>", TURNS),
}
THINKING = {
    "qwen3": FAMILIES["qwen3"],
    "gemma4": (GEMMA_4, "<bos>", ("<|turn>", "<turn|>", "<|think|>", "<|channel>", "<channel|>")),
    "gpt-oss": (GPT_OSS, None, ("<|start|>", "<|end|>", "<|message|>", "<|channel|>")),
    "magistral": (
        MAGISTRAL,
        "<s>",
        ("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[THINK]", "[/THINK]"),
    ),
}
"""Template, BOS and the tokens that a text cannot hold, by family."""

HEADERS = {
    "llama3.2": (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
        "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "qwen3": ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
    "mistral": ("<s>[INST] ", "[/INST]"),
    "gemma2": ("<bos><start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n"),
}
"""What stands before and after a user's text."""


def tokenizer_of(family):
    """A byte-level tokenizer with ``family``'s special tokens and template; two newlines are one token."""
    template, bos, special = (FAMILIES | THINKING)[family]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    newline = "Ċ"
    vocab = {letter: i for i, letter in enumerate([*alphabet, newline * 2])}
    raw = Tokenizer(models.BPE(vocab=vocab, merges=[(newline, newline)]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=bos, clean_up_tokenization_spaces=False)
    made.add_special_tokens({"additional_special_tokens": list(special)})
    made.chat_template = template
    return made


def only(tokenizer):
    """What prompts read of an engine."""
    return SimpleNamespace(tokenizer=tokenizer, max_new_tokens=None, context_length=4096)
