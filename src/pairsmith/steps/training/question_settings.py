"""Settings of the trainings on questions: those of question generators, teachers and students."""

from typing import Annotated, Literal

from pydantic import Field

from pairsmith.core.settings import BY_CONTENT, Listed
from pairsmith.methods.quip.training_options import QuestionGeneratorOptions, StudentOptions, TeacherOptions
from pairsmith.steps.training.settings import FitSettings

QuestionSources = Annotated[
    list[str],
    Listed,
    Field(
        min_length=1,
        description="Questions with answers: SQuAD files, or rows with the columns question, context and "
        "answers.",
        json_schema_extra=BY_CONTENT,
    ),
]


class TrainQuestionGeneratorSettings(QuestionGeneratorOptions, FitSettings):
    """A question generator: a model that reads a passage, and writes an answer and its question (Q2)."""

    data: QuestionSources


class TrainTeacherSettings(TeacherOptions, FitSettings):
    """A teacher: a reader from whose span distributions students learn (Q3)."""

    data: QuestionSources
    labels: Literal["answers", "hard"] = Field(
        default="answers",
        description="Training targets. answers: the first answer of each question; hard: the likeliest start "
        "and, separately, the likeliest end according to an earlier teacher, as relabel writes them.",
    )


class InfuseSettings(StudentOptions, FitSettings):
    """A student: a bi-encoder whose token vectors answer questions as a teacher would (Q4, Q5)."""

    data: Annotated[list[str], Listed] = Field(
        min_length=1,
        description="Questions on passages with a teacher's span distributions, as relabel writes them; with "
        "--labels answers, any questions with answers.",
        json_schema_extra=BY_CONTENT,
    )
