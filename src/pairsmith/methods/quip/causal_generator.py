"""Generate questions with a causal language model that follows an instruction, with DINO's decoder.

passage and instruction -> sampled answers -> a sampled question behind each
"""

from collections.abc import Sequence
from itertools import islice

from pairsmith.core.errors import ModelError
from pairsmith.data.filters import TOO_LONG
from pairsmith.data.schemas import Reject
from pairsmith.data.text.instructed import (
    ANSWER,
    END,
    QUESTION,
    prompt_of,
    prompt_of_examples,
    room_for_passage,
)
from pairsmith.methods.quip.options import BATCH_SIZES, GenerationOptions
from pairsmith.methods.quip.passages import Passage, keep_all
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.faults import fault_of_text
from pairsmith.models.language.prefixes import common
from pairsmith.models.language.protocols import Prompt, SteerableModel
from pairsmith.models.language.sampling import Sampling
from pairsmith.models.question_generator import (
    GENERATED_ANSWER_TOKENS,
    GENERATED_QUESTION_TOKENS,
    WrittenQuestion,
)
from pairsmith.runs.seeds import stream_key
from pairsmith.runs.work import Advance

_LONG_PASSAGE = (TOO_LONG, "the passage does not fit the model together with the instruction")
_LONG_ANSWER = (TOO_LONG, "the answer leaves no room for a question")


class CausalGenerator:
    """Generates questions with a causal language model that follows an instruction.

    The samples for a passage do not depend on other passages: its random streams are keyed by its id.
    """

    def __init__(self, model: SteerableModel, options: GenerationOptions) -> None:
        """Raises: ModelError: the instruction leaves no room for a passage."""
        self.model = model
        self._options = options
        around = len(self._prompt("", ANSWER))
        lead = len(self._behind_line_break(QUESTION))
        self._tail = GENERATED_ANSWER_TOKENS + lead + GENERATED_QUESTION_TOKENS
        room = room_for_passage(model.context, around, self._tail, options.instruction)
        if room < 1:
            raise ModelError(
                f"model {model.name}: reads {model.context} tokens, of which the instruction takes "
                f"{around} with the examples and the output {self._tail}; shorten --instruction, or show "
                "fewer examples"
            )
        self.limit = min(options.max_length or room, room)
        self._special = len(model.encode(""))

    def length(self, text: str) -> int:
        """The number of tokens in a text, without special ones."""
        return len(self.model.encode(text)) - self._special

    def generate(self, passages: Sequence[Passage], advance: Advance = lambda _: None) -> list[Reject]:
        """Add generated questions to each passage; returns the outputs that were not kept."""
        rejects: list[Reject] = []
        most = self._options.batch_size or BATCH_SIZES["causal"]
        # Batches of about one size: the last rows of each are drawn nearly alone.
        size = -(-len(passages) // max(1, -(-len(passages) // most)))
        for first in range(0, len(passages), max(1, size)):
            some = passages[first : first + size]
            for _ in range(self._options.tries):
                left = [passage for passage in some if passage.missing(self._options.questions)]
                rejects += keep_all(left, self._draw(left))
                advance(len(some))
        return rejects

    def _draw(self, passages: Sequence[Passage]) -> list[list[WrittenQuestion]]:
        """Sample as many answers as each passage lacks questions, and a question behind each answer."""
        wanted = self._options.questions
        samples = [(passage, number) for passage in passages for number in passage.missing(wanted)]
        written = (_written(answer, question) for answer, question in self._drawn(samples))
        return [list(islice(written, len(passage.missing(wanted)))) for passage in passages]

    def _drawn(self, samples: Sequence[tuple[Passage, int]]) -> list[tuple[Group | None, Group | None]]:
        """The answer of each sample, and the question behind it if the answer has no fault.

        A sample is a passage and the number of its output. It has no answer if the prompt is too long for the
        model: instruction and passage may have more tokens together than apart.
        """
        prompts = {passage.id: self._prompt(passage.text, ANSWER) for passage, _ in samples}
        top_p = self._options.top_p
        sampling = Sampling(top_k=0, top_p=top_p, max_tokens=GENERATED_ANSWER_TOKENS, stop=END, may_end=True)
        decoder = MultiPromptDecoder(
            self.model, self_debias, sampling, self._options.seed, prompts.values(), tail=self._tail
        )
        numbers: dict[Group, int] = {}
        for number, (passage, sample) in enumerate(samples):
            group = Group(prompts[passage.id], (), stream_key(passage.id, sample, "answer"))
            if decoder.fits(group.main):
                numbers[group] = number
                decoder.add(group)
        answers: dict[int, Group] = {}
        questions: dict[int, Group] = {}
        for group in decoder.finished():
            number = numbers[group]
            if number in answers:
                questions[number] = group
                continue
            answers[number] = group
            lead = self._lead(group)
            fits = len(lead) + GENERATED_QUESTION_TOKENS <= decoder.room_after(group)
            if fits and not fault_of_text(group):
                passage, sample = samples[number]
                stream = stream_key(passage.id, sample, "question")
                numbers[decoder.follow(group, lead, stream, GENERATED_QUESTION_TOKENS)] = number
        return [(answers.get(number), questions.get(number)) for number in range(len(samples))]

    def _lead(self, answer: Group) -> list[int]:
        """The tokens that the model reads between an answer and its question, instead of the last one drawn.

        That token ended the answer with a quotation mark; what it has before the mark, such as the full stop
        of ``."``, is part of the answer and is read first.
        """
        last = self.model.decode(answer.tokens[-1:]).partition(END)[0]
        return self._behind_line_break(last + QUESTION)

    def _behind_line_break(self, text: str) -> list[int]:
        """The tokens of a text that follows another: alone it may get others, and special ones around it."""
        before, every = self.model.encode("x\n"), self.model.encode("x\n" + text)
        tokens = every[common(before, every) :]
        while tokens and tokens[-1] in self.model.end_tokens:
            tokens.pop()
        return tokens

    def _prompt(self, passage: str, begun: str) -> Prompt:
        """The tokens of the instruction with the passage, and of the beginning of the model's output."""
        instruction = self._options.instruction
        before = prompt_of_examples(self._options.examples, instruction)
        if self._options.chat:
            return tuple(self.model.encode_chat(before + instruction.replace("{passage}", passage), begun))
        return tuple(self.model.encode(before + prompt_of(passage, begun, instruction)))


def _written(answer: Group | None, question: Group | None) -> WrittenQuestion:
    if answer is None:
        return WrittenQuestion("", "", _LONG_PASSAGE)
    if question is None:
        return WrittenQuestion(answer.text.strip(), "", fault_of_text(answer) or _LONG_ANSWER)
    return WrittenQuestion(answer.text.strip(), question.text.strip(), fault_of_text(question))
