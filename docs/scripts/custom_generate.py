"""Soft Reasoning through model.generate of transformers, on the bundled model."""

import json
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

import soft_reasoning

PACKAGE = Path(soft_reasoning.__file__).parent
QUESTIONS = [
    "Sam has 8 cards. 1) Sam gets 10. 2) Sam loses 5. How many cards does Sam have now?",
    "Ben has 40 books. 1) Ben gives 4 to each of 5 friends. 2) Ben gets 6. How many books does Ben have now?",
]

tokenizer = AutoTokenizer.from_pretrained(PACKAGE / "demo" / "model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained(PACKAGE / "demo" / "model")
prompts = [f"Question:\n{question}\nThought:\n" for question in QUESTIONS]  # as the model was trained
inputs = tokenizer(prompts, return_tensors="pt", padding=True)

output = model.generate(
    input_ids=inputs["input_ids"],
    attention_mask=inputs["attention_mask"],
    tokenizer=tokenizer,
    custom_generate=str(PACKAGE / "integrations" / "custom_generate"),
    trust_remote_code=True,
    max_new_tokens=100,
    rounds=2,
    return_dict_in_generate=True,
)
for row in output.sequences:
    print(tokenizer.decode(row, skip_special_tokens=True), end="\n\n")
print(json.dumps(output.answers))
