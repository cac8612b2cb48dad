"""Generate questions with a causal language model that follows an instruction, with DINO's decoder.

passage and instruction -> sampled answers -> a sampled question for each
"""

from collections.abc import Sequence
from itertools import islice

from pairsmith.core.errors import ModelError
from pairsmith.data.schemas import Reject
from pairsmith.data.text.instructed import (
    ANSWER,
    END,
    QUESTION,
    prompt_of,
    prompt_of_examples,
    room_for_passage,
)
from pairsmith.methods.quip.options import GenerationOptions
from pairsmith.methods.quip.passages import Passage, keep_all
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.protocols import Prompt, SteerableModel
from pairsmith.models.language.sampling import Sampling
from pairsmith.models.question_generator import (
    GENERATED_ANSWER_TOKENS,
    GENERATED_QUESTION_TOKENS,
    GenerationFault,
    WrittenQuestion,
)
from pairsmith.runs.seeds import stream_key
from pairsmith.runs.work import Advance


class CausalGenerator:
    """Generates questions with a causal language model that follows an instruction.

    The samples for a passage do not depend on other passages: its random streams are keyed by its id.
    """

    def __init__(self, model: SteerableModel, options: GenerationOptions) -> None:
        """Raises: ModelError: the instruction leaves no room for a passage."""
        self.model = model
        self._options = options
        around = len(self._prompt("", ANSWER + QUESTION))
        written = GENERATED_ANSWER_TOKENS + GENERATED_QUESTION_TOKENS
        room = room_for_passage(model.context, around, written, options.instruction)
        if room < 1:
            raise ModelError(
                f"model {model.name}: reads {model.context} tokens, of which the instruction takes "
                f"{around} with the examples and the output {written}; shorten --instruction, or show fewer "
                "examples"
            )
        self.limit = min(options.max_length or room, room)
        self._special = len(model.encode(""))

    def length(self, text: str) -> int:
        """The number of tokens in a text, without special ones."""
        return len(self.model.encode(text)) - self._special

    def generate(self, passages: Sequence[Passage], advance: Advance = lambda _: None) -> list[Reject]:
        """Add generated questions to each passage; returns the outputs that were not kept."""
        rejects: list[Reject] = []
        for first in range(0, len(passages), self._options.batch_size):
            some = passages[first : first + self._options.batch_size]
            for _ in range(self._options.tries):
                left = [passage for passage in some if passage.missing(self._options.questions)]
                rejects += keep_all(left, self._draw(left))
                advance(len(some))
        return rejects

    def _draw(self, passages: Sequence[Passage]) -> list[list[WrittenQuestion]]:
        """Sample as many answers as each passage lacks questions, and a question for each answer."""
        wanted = self._options.questions
        samples = [(passage, number) for passage in passages for number in passage.missing(wanted)]
        prompts = {passage.id: self._prompt(passage.text, ANSWER) for passage in passages}
        answers = self._continue(
            [(prompts[passage.id], stream_key(passage.id, number, "answer")) for passage, number in samples],
            GENERATED_ANSWER_TOKENS,
        )
        asking: dict[int, tuple[Prompt, int]] = {}
        for row, ((passage, number), answer) in enumerate(zip(samples, answers, strict=True)):
            if not _fault(answer, "no answer", "long answer"):
                prompt = self._prompt(passage.text, ANSWER + answer.text + QUESTION)
                # Encoded again, an answer may have more tokens than were sampled.
                if len(prompt) <= self.model.context - GENERATED_QUESTION_TOKENS:
                    asking[row] = prompt, stream_key(passage.id, number, "question")
        asked = dict(
            zip(asking, self._continue(list(asking.values()), GENERATED_QUESTION_TOKENS), strict=True)
        )
        written = (_written(answer, asked.get(row)) for row, answer in enumerate(answers))
        return [list(islice(written, len(passage.missing(wanted)))) for passage in passages]

    def _prompt(self, passage: str, begun: str) -> Prompt:
        """The tokens of the instruction with the passage, and of the beginning of the model's output."""
        instruction = self._options.instruction
        before = prompt_of_examples(self._options.examples, instruction)
        if self._options.chat:
            return tuple(self.model.encode_chat(before + instruction.replace("{passage}", passage), begun))
        return tuple(self.model.encode(before + prompt_of(passage, begun, instruction)))

    def _continue(self, begun: Sequence[tuple[Prompt, int]], max_tokens: int) -> list[Group]:
        """Sample a continuation of each prompt with its stream of random numbers, up to a quotation mark."""
        top_p = self._options.top_p
        sampling = Sampling(top_k=0, top_p=top_p, max_tokens=max_tokens, stop=END, may_end=True)
        prompts = [prompt for prompt, _ in begun]
        decoder = MultiPromptDecoder(self.model, self_debias, sampling, self._options.seed, prompts)
        for prompt, stream in begun:
            decoder.add(Group(prompt, (), stream))
        found = {each.stream: each for each in decoder.finished()}
        return [found[stream] for _, stream in begun]


def _written(answer: Group, question: Group | None) -> WrittenQuestion:
    if question is None:
        reason = _fault(answer, "no answer", "long answer") or "long answer"
        return WrittenQuestion(answer.text.strip(), "", reason)
    fault = _fault(question, "no question", "long question")
    return WrittenQuestion(answer.text.strip(), question.text.strip(), fault)


def _fault(drawn: Group, nothing: GenerationFault, long: GenerationFault) -> GenerationFault | None:
    text = drawn.text.strip()
    if drawn.ending != "stop":
        return long if drawn.ending == "length" else "unfinished"
    if not text:
        return nothing
    if "\n" in text:
        return "several lines"
    return None if text.isprintable() and "\ufffd" not in text else "unreadable"
