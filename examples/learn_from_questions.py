"""Generate questions of passages, have a teacher answer them, and train an encoder on the answers.

    python examples/learn_from_questions.py [TEACHER]

TEACHER is a model for question answering: a folder or a name of the Hub. Without one the questions' own
answers are learned.
"""

import sys
from pathlib import Path

import pairsmith

sentences = (Path(__file__).parent / "sentences.txt").read_text(encoding="utf-8").splitlines()
texts = [" ".join(sentences[start : start + 6]) for start in range(0, len(sentences), 6)]

# "cloze" takes names and numbers out of sentences; a name of a model has that model write questions.
questions = pairsmith.generate_questions(texts, pairsmith.load_question_generator("cloze"))
for question in questions[:5]:
    print(f"{question.question}  {question.generated_answer}")

labels = "answers"
if len(sys.argv) > 1:
    questions = pairsmith.label_questions(questions, pairsmith.load_reader(sys.argv[1]))
    labels = "teacher"
trained = pairsmith.distil(questions, "embedded:all-minilm-l6-v2", labels=labels, epochs=1)
print(f"trained on {trained.questions} questions of {trained.passages} passages")
(answer,) = pairsmith.answer_with_student(trained.model, [questions[0].question], [questions[0].context])
print(f"{questions[0].question}  {answer.text}")
