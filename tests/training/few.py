"""Small examples of each kind of task, as files."""

import json

PEOPLE = ("Ann", "Bob", "Cid", "Dora", "Eve", "Finn", "Gus", "Hal", "Ida", "Jon", "Kim", "Lea")
PLAYS = ("guitar", "drum", "flute", "harp", "horn", "lute", "bell", "viol", "pipe", "gong", "oboe", "tuba")


def passage(number):
    return f"{PEOPLE[number]} plays the {PLAYS[number]}. It was made in {1900 + number} in Rome."


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def reading(path, numbers=range(12)):
    return write(
        path,
        [
            {
                "context": passage(n),
                "question": f"who plays the {PLAYS[n]}?",
                "answers": {"text": [PEOPLE[n]], "answer_start": [0]},
            }
            for n in numbers
        ],
    )


def document(number):
    return "\n".join(
        [
            f"A {PLAYS[number]} was heard.",
            f"It was {PEOPLE[number]} again.",
            "People came to see it.",
            f"The {PLAYS[number]} is loud.",
        ]
    )


def summaries(path, numbers=range(12)):
    return write(
        path, [{"document": document(n), "summary": f"{PEOPLE[n]} played the {PLAYS[n]}."} for n in numbers]
    )


def pairs(path, numbers=range(12)):
    return write(
        path,
        [
            {"input": f"who plays the {PLAYS[n]}?", "output": f"{PEOPLE[n]} does, the {PLAYS[n]}"}
            for n in numbers
        ],
    )


MAKERS = {"reading": reading, "summaries": summaries, "pairs": pairs}
