"""Question generation with a causal language model that follows an instruction (Q2).

nucleus: passage and instruction -> sampled answers -> a sampled question after each, with DINO's decoder
beams: passage and instruction -> the likeliest answers -> diverse ones -> the likeliest question after each
"""

from collections.abc import Iterable, Sequence

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import ModelError
from pairsmith.data.filters import TOO_LONG
from pairsmith.data.text.instructed import (
    ANSWER_CUE,
    CLOSING_QUOTE,
    QUESTION_CUE,
    instructed_prompt,
    prompt_of_examples,
    room_for_passage,
)
from pairsmith.methods.quip.options import BATCH_SIZES, QUESTION_BEAMS, GenerationOptions
from pairsmith.methods.quip.passages import NOT_CHOSEN, Passage, diverse, keep_all
from pairsmith.models.language.beam_search import Continuation, search_continuations
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.faults import TextFault, fault_of_text
from pairsmith.models.language.prefixes import common_length
from pairsmith.models.language.protocols import Prompt, SteerableModel
from pairsmith.models.language.sampling import Sampling
from pairsmith.models.question_generator import (
    GENERATED_ANSWER_TOKENS,
    GENERATED_QUESTION_TOKENS,
    WrittenQuestion,
)
from pairsmith.runs.seeds import stream_key
from pairsmith.runs.work import Advance

Output = tuple[int, int]
"""The row of a passage, and the number of one of its outputs; an output is an answer with its question."""

_LONG_PASSAGE = (TOO_LONG, "the passage does not fit the model together with the instruction")
_LONG_ANSWER = (TOO_LONG, "the answer leaves no room for a question")


class CausalGenerator:
    """Generates questions with a causal language model that follows an instruction.

    What is sampled for a passage does not depend on other passages: its id is the key of its random streams.
    """

    def __init__(self, model: SteerableModel, options: GenerationOptions) -> None:
        """Raises: ModelError: the instruction leaves no room for a passage."""
        self.model = model
        self._options = options
        self.tries = options.tries
        around = len(self._prompt("", ANSWER_CUE))
        lead = len(self._behind_line_break(QUESTION_CUE))
        self._tail = GENERATED_ANSWER_TOKENS + lead + GENERATED_QUESTION_TOKENS
        room = room_for_passage(model.context, around, self._tail, options.instruction)
        if room < 1:
            raise ModelError(
                f"model {model.name}: reads {model.context} tokens, of which the instruction takes "
                f"{around} with the examples and the output {self._tail}; shorten the instruction, or show "
                "fewer examples"
            )
        self.limit = min(options.max_length or room, room)
        self._special = len(model.encode(""))

    def __repr__(self) -> str:
        """The model's name, number format and device."""
        return f"{type(self).__name__}({self.model!r})"

    def length(self, text: str) -> int:
        """The number of tokens in a text, without special ones."""
        return len(self.model.encode(text)) - self._special

    def generate(self, passages: Sequence[Passage], advance: Advance = lambda _: None) -> None:
        """Add the generated questions to each passage, and outputs that are not kept to its rejects."""
        most = self._options.batch_size or BATCH_SIZES["causal"]
        # Batches of nearly equal size: a small last batch would leave most rows of the decoder empty.
        size = -(-len(passages) // max(1, -(-len(passages) // most)))
        for batch in in_batches(passages, max(1, size)):
            if self._options.decoding == "beams":
                keep_all(batch, self._search_questions(batch))
                advance(self.tries * len(batch))
                continue
            for _ in range(self.tries):
                unfinished = [passage for passage in batch if passage.missing(self._options.questions)]
                keep_all(unfinished, self._sample_questions(unfinished))
                advance(len(batch))

    def _sample_questions(self, passages: Sequence[Passage]) -> list[list[WrittenQuestion]]:
        """For each question that a passage still needs, sample an answer and a question after it (Q2)."""
        prompts = [self._prompt(passage.text, ANSWER_CUE) for passage in passages]
        top_p = self._options.top_p
        sampling = Sampling(
            top_k=0, top_p=top_p, max_tokens=GENERATED_ANSWER_TOKENS, stop=CLOSING_QUOTE, may_end=True
        )
        decoder = MultiPromptDecoder(
            self.model, self_debias, sampling, self._options.seed, prompts, tail=self._tail
        )
        count = self._options.questions
        written: dict[Output, WrittenQuestion] = {}
        answers: dict[Group, Output] = {}
        questions: dict[Group, tuple[Output, str]] = {}  # with the text of the answer
        for row, passage in enumerate(passages):
            for number in passage.missing(count):
                if not decoder.fits(prompts[row]):  # a prompt may have more tokens than its parts together
                    written[row, number] = WrittenQuestion("", "", _LONG_PASSAGE)
                    continue
                answer = Group(prompts[row], (), stream_key(passage.id, number, "answer"))
                answers[answer] = row, number
                decoder.add(answer)
        for group in decoder.finished():
            text, fault = group.text.strip(), fault_of_text(group.text, group.ending)
            if group in questions:
                output, answer_text = questions[group]
                written[output] = WrittenQuestion(answer_text, text, fault)
                continue
            row, number = answers[group]
            lead = self._lead(group.tokens)
            if not fault and len(lead) + GENERATED_QUESTION_TOKENS > decoder.room_after(group):
                fault = _LONG_ANSWER
            if fault:
                written[row, number] = WrittenQuestion(text, "", fault)
            else:
                stream = stream_key(passages[row].id, number, "question")
                question = decoder.follow(group, lead, stream, GENERATED_QUESTION_TOKENS)
                questions[question] = (row, number), text
        return [
            [written[row, number] for number in passage.missing(count)]
            for row, passage in enumerate(passages)
        ]

    def _search_questions(self, passages: Sequence[Passage]) -> list[list[WrittenQuestion]]:
        """Search for the likeliest answers, choose diverse ones, and search for the question of each (Q2)."""
        written: list[list[WrittenQuestion]] = [[] for _ in passages]
        answer_prompts: dict[int, Prompt] = {}
        for row, passage in enumerate(passages):
            prompt = self._prompt(passage.text, ANSWER_CUE)
            if len(prompt) + self._tail <= self.model.context:
                answer_prompts[row] = prompt
            else:
                written[row].append(WrittenQuestion("", "", _LONG_PASSAGE))
        # Answers are ranked by the probability of the whole answer, questions by the mean of their tokens'.
        beams = self._options.beams
        answers_of_passages = self._search_texts(
            answer_prompts.values(), GENERATED_ANSWER_TOKENS, beams, count=beams, length_penalty=0.0
        )
        question_prompts: list[tuple[int, str, Prompt]] = []  # the passage's row, the answer, the prompt
        for (row, prompt), answers in zip(answer_prompts.items(), answers_of_passages, strict=True):
            texts = [self._text(answer) for answer in answers]
            faults = [self._fault(answer) for answer in answers]
            good = ["" if fault else text for text, fault in zip(texts, faults, strict=True)]
            chosen = diverse(good, self._options.questions)
            for place, (answer, text, fault) in enumerate(zip(answers, texts, faults, strict=True)):
                if place not in chosen:
                    written[row].append(WrittenQuestion(text, "", fault or NOT_CHOSEN))
                    continue
                question_prompt = (*prompt, *answer.tokens[:-1], *self._lead(answer.tokens))
                if len(question_prompt) + GENERATED_QUESTION_TOKENS <= self.model.context:
                    question_prompts.append((row, text, question_prompt))
                else:
                    written[row].append(WrittenQuestion(text, "", _LONG_ANSWER))
        questions_of_answers = self._search_texts(
            [prompt for *_, prompt in question_prompts],
            GENERATED_QUESTION_TOKENS,
            QUESTION_BEAMS,
            count=1,
            length_penalty=1.0,
        )
        for (row, answer_text, _), questions in zip(question_prompts, questions_of_answers, strict=True):
            question = questions[0] if questions else Continuation()
            written[row].append(WrittenQuestion(answer_text, self._text(question), self._fault(question)))
        return written

    def _search_texts(
        self, prompts: Iterable[Prompt], max_tokens: int, beams: int, count: int, length_penalty: float
    ) -> list[list[Continuation]]:
        """The likeliest continuations of each prompt that end with a quotation mark, see ``beam_search``."""
        return search_continuations(
            self.model,
            list(prompts),
            beams=beams,
            count=count,
            max_tokens=max_tokens,
            ends=self.model.tokens_with(CLOSING_QUOTE),
            never=self.model.end_tokens,
            length_penalty=length_penalty,
        )

    def _text(self, continuation: Continuation) -> str:
        return self.model.decode(continuation.tokens).partition(CLOSING_QUOTE)[0].strip()

    def _fault(self, continuation: Continuation) -> TextFault | None:
        return fault_of_text(self._text(continuation), "stop" if continuation.ended else "length")

    def _lead(self, answer: Sequence[int]) -> list[int]:
        """The tokens that the model reads between an answer and its question.

        These tokens replace the last token of the answer, which holds the closing quotation mark. Text before
        the mark in that token, such as the full stop of ``."``, belongs to the answer and comes first.
        """
        last = self.model.decode(answer[-1:]).partition(CLOSING_QUOTE)[0]
        return self._behind_line_break(last + QUESTION_CUE)

    def _behind_line_break(self, text: str) -> list[int]:
        """The tokens of a text that follows a line break.

        Tokenized alone, a text may get other tokens, with special tokens around them.
        """
        before, joined = self.model.encode("x\n"), self.model.encode("x\n" + text)
        tokens = joined[common_length(before, joined) :]
        while tokens and tokens[-1] in self.model.end_tokens:
            tokens.pop()
        return tokens

    def _prompt(self, passage: str, begun: str) -> Prompt:
        """The prompt's tokens: the instruction with the passage, then ``begun``, the start of the output."""
        instruction = self._options.instruction
        before = prompt_of_examples(self._options.examples, instruction)
        if self._options.chat:
            return tuple(self.model.encode_chat(before + instruction.replace("{passage}", passage), begun))
        return tuple(self.model.encode(before + instructed_prompt(passage, begun, instruction)))
