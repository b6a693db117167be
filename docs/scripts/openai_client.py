"""A client of soft-reasoning serve: python docs/scripts/openai_client.py [URL] [KEY]."""

import sys

from openai import OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
key = sys.argv[2] if len(sys.argv) > 2 else "none"
question = "Sam has 8 cards. 1) Sam gets 10. 2) Sam loses 5. How many cards does Sam have now?"
messages = [{"role": "user", "content": question}]
client = OpenAI(base_url=url, api_key=key)

# demo is the configured method, METHOD-demo another one.
for model in ("cot-demo", "demo"):
    response = client.chat.completions.create(model=model, messages=messages)
    text, usage = response.choices[0].message.content, response.usage
    print(f"{model}: {text.strip()!r}, {usage.completion_tokens} tokens")

# Options that OpenAI's API lacks go into extra_body; their results come back in fields named soft_reasoning.
response = client.chat.completions.create(
    model="demo",
    messages=messages,
    n=3,
    seed=1,
    extra_body={"soft_reasoning": {"k": 4, "rounds": 1}},
)
for choice in response.choices:
    print(choice.soft_reasoning["source"], choice.soft_reasoning["reward"], choice.soft_reasoning["answer"])
print("answer:", response.soft_reasoning["answer"], "of", response.soft_reasoning["candidates"], "candidates")

# A stream begins at once; the answer follows when the search has ended.
stream = client.chat.completions.create(
    model="demo", messages=messages, stream=True, stream_options={"include_usage": True}
)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="")
    if chunk.usage is not None:
        hidden = chunk.usage.completion_tokens_details.reasoning_tokens
        print(f"\n{chunk.usage.completion_tokens} tokens, {hidden} of them hidden")
