"""Small runs of most commands, with real models, and the inputs that they read; unchanged.py runs them.

Each ends within seconds on one core.
"""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pairsmith.core.gguf import SMOLLM2, gguf_folder
from pairsmith.core.model_names import MINILM
from same_rows import EXAMPLES, furnish, put

SIX = "../smollm2-six"
STEPS = "--steps 4 --device cpu --dtype float32 --batch-size 4 --learning-rate 1e-4"
MAX_STEPS = STEPS.replace("--steps", "--max-steps")
READ = "--device cpu --dtype float32"
QUESTIONS = "--kind reading --inputs questions.txt --outputs passages.txt"
STUDENT = f"infuse --base {MINILM} {MAX_STEPS} --questions 2 --max-length 100"

# The folder that a command writes, and the command; files are those that write_inputs makes.
COMMANDS = {
    "texts": f"generate --model {SMOLLM2} --inputs sentences.txt --limit 2 --per-input 1 --tries 1 "
    f"--max-tokens 16 --seed 7 {READ}",
    "pairs": f"generate --model pairsmith:tiny --inputs sentences.txt --limit 15 --seed 7 {READ}",
    "clean": "postprocess --data pairs",
    "encoder": f"train-encoder --base {SMOLLM2} --layers 6 --attention bidirectional --objective contrastive "
    f"--data clean {MAX_STEPS}",
    "scored": f"train-encoder --base {MINILM} --data clean {MAX_STEPS}",
    "similarity": f"evaluate sts --model encoder --data graded.tsv {READ}",
    "biencoder": f"train-biencoder --seeds answered.jsonl --base {MINILM} {QUESTIONS} {STEPS}",
    "mined": f"mine --encoder biencoder --style 0 --retrieval candidates --best 40 {QUESTIONS} {READ}",
    "summaries": f"mine --kind summaries --inputs documents.jsonl --outputs more.jsonl --encoder {MINILM} "
    f"{READ}",
    "crossencoder": f"train-crossencoder --kind reading --seeds answered.jsonl --base {MINILM} --mined mined "
    f"--encoder biencoder {STEPS}",
    "by-crossencoder": f"filter --pairs mined --model crossencoder --one-per both --best 10 {READ}",
    "by-likelihood": f"filter --pairs mined --judge likelihood --model {SIX} --beside margin --one-per both "
    f"--best 10 {READ}",
    "by-margin": "filter --pairs mined --judge margin --one-per both --best 10",
    "reader": f"train-reader --seeds answered.jsonl --added by-crossencoder --extra 5 --base {SIX} {STEPS}",
    "read": f"evaluate qa --model reader --data answered.jsonl {READ}",
    "summarizer": f"train-summarizer --seeds documents.jsonl --added summaries --extra 4 --base {SIX} "
    f"{STEPS}",
    "summarized": f"evaluate summaries --model summarizer --data more.jsonl --limit 3 --beams 2 "
    f"--summary-tokens 12 {READ}",
    "rewritten": f"rewrite --kind summaries --pairs summaries --model summarizer --best 2 --beams 2 {READ}",
    "generator": f"train-asker --data answered.jsonl --base {SIX} {MAX_STEPS}",
    "asked": f"ask --inputs passages.txt --sample 3 --model generator --questions 2 --tries 1 {READ}",
    "prompted": f"ask --inputs passages.txt --sample 1 --model {SMOLLM2} --examples asked.jsonl --shots 1 "
    f"--questions 2 --tries 1 {READ}",
    "clozes": f"ask --inputs passages.txt --model cloze --questions 4 {READ}",
    "teacher": f"train-teacher --data answered.jsonl --base {MINILM} {MAX_STEPS}",
    "relabelled": f"relabel --data clozes --model teacher {READ}",
    "student": f"{STUDENT} --data relabelled",
    "direct": f"{STUDENT} --data answered.jsonl --labels answers",
    "joined": f"{STUDENT} --data relabelled --negatives batch",
    "bfloat16": f"{STUDENT} --data relabelled --negatives batch".replace("float32", "bfloat16"),
    "student-qa": f"evaluate qa --model student --data answered.jsonl {READ}",
    "student-names": f"evaluate ner --model student --data names.conll --train names.conll --shots 2 "
    f"--splits 0 --epochs 15 --learning-rate 1e-3 {READ}",
    "student-paraphrases": f"evaluate paraphrase --model student --data labelled.tsv --train labelled.tsv "
    f"--shots 8 --splits 13 {READ}",
    "student-opinions": f"evaluate sentiment --model student --data opinions.tsv {READ}",
}


def write_six_layers(folder: Path) -> None:
    """SmolLM2's first six layers as a model of its own."""
    if not (folder / "tokenizer.json").is_file():
        model = AutoModelForCausalLM.from_pretrained(gguf_folder(SMOLLM2), dtype=torch.float32)
        model.model.layers = model.model.layers[:6]
        model.config.num_hidden_layers = 6
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(gguf_folder(SMOLLM2)).save_pretrained(folder)


def write_inputs(folder: Path) -> None:
    """The inputs, made of examples/: texts and questions, graded and labelled pairs, opinions, names."""
    furnish(folder)
    sentences = (folder / "sentences.txt").read_text(encoding="utf-8").splitlines()
    passages = [
        f"{sentences[i]} Ann Hill{i} built the mill of Brook{i} in {1700 + i}. {sentences[-i]}"
        for i in range(40)
    ]
    questions = [f"Who built the mill of Brook{i}?" for i in range(40)]
    answered = [
        {
            "context": passage,
            "question": question,
            "answers": {"text": [f"Ann Hill{i}"], "answer_start": [passage.index("Ann Hill")]},
        }
        for i, (passage, question) in enumerate(zip(passages, questions, strict=True))
    ]
    put(folder / "answered.jsonl", answered[:20])
    (folder / "passages.txt").write_text("\n".join(passages) + "\n", encoding="utf-8")
    (folder / "questions.txt").write_text("\n".join(questions[20:]) + "\n", encoding="utf-8")
    (folder / "asked.jsonl").write_bytes((EXAMPLES / "asked.jsonl").read_bytes())
    graded = (EXAMPLES / "graded-pairs.tsv").read_text(encoding="utf-8").splitlines()[:41]
    (folder / "graded.tsv").write_text("\n".join(graded) + "\n", encoding="utf-8")
    pairs = [line.split("\t") for line in graded[1:]]
    labelled = ["sentence1\tsentence2\tlabel"] + [
        f"{a}\t{b}\t{int(float(score) >= 3)}" for a, b, score in pairs
    ]
    (folder / "labelled.tsv").write_text("\n".join(labelled) + "\n", encoding="utf-8")
    opinions = [f"{('A bad', 'A good')[i % 2]} film. {sentences[i]}\t{i % 2}" for i in range(20)]
    (folder / "opinions.tsv").write_text("\n".join(["sentence\tlabel", *opinions]) + "\n", encoding="utf-8")
    tagged = []  # the place of a person's name cannot be learned, so that F1 is neither 0 nor 100
    for i, sentence in enumerate(sentences[:20]):
        words = sentence.split()
        tags = {i % 4: "B-PER", len(words) - 1: "B-LOC"}
        tagged.append("".join(f"{word} {tags.get(place, 'O')}\n" for place, word in enumerate(words)))
    (folder / "names.conll").write_text("\n".join(tagged) + "\n", encoding="utf-8")
