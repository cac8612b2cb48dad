"""Generate questions with a causal language model that follows an instruction.

passage and instruction -> sampled answers -> a sampled question behind each, with DINO's decoder; or
passage and instruction -> the likeliest answers -> the likeliest question behind each that is chosen (Q2)
"""

from collections.abc import Iterable, Sequence
from itertools import islice

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
from pairsmith.methods.quip.diverse_answers import NOT_CHOSEN, diverse
from pairsmith.methods.quip.options import BATCH_SIZES, QUESTION_BEAMS, GenerationOptions
from pairsmith.methods.quip.passages import Passage, keep_all
from pairsmith.models.language.beam_search import Continuation, search_continuations
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.faults import TextFault, fault_of_text
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
        around = len(self._prompt("", ANSWER_CUE))
        lead = len(self._behind_line_break(QUESTION_CUE))
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

    def generate(self, passages: Sequence[Passage], advance: Advance = lambda _: None) -> None:
        """Add generated questions to each passage, and the outputs that are not kept to its rejects."""
        most = self._options.batch_size or BATCH_SIZES["causal"]
        # Batches of about one size: the last rows of each are drawn nearly alone.
        size = -(-len(passages) // max(1, -(-len(passages) // most)))
        for batch in in_batches(passages, max(1, size)):
            if self._options.decoding == "beams":
                keep_all(batch, self._search(batch))
                advance(self._options.tries * len(batch))
                continue
            for _ in range(self._options.tries):
                unfinished = [passage for passage in batch if passage.missing(self._options.questions)]
                keep_all(unfinished, self._draw(unfinished))
                advance(len(batch))

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
        prompts = {passage.id: self._prompt(passage.text, ANSWER_CUE) for passage, _ in samples}
        top_p = self._options.top_p
        sampling = Sampling(
            top_k=0, top_p=top_p, max_tokens=GENERATED_ANSWER_TOKENS, stop=CLOSING_QUOTE, may_end=True
        )
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
            lead = self._lead(group.tokens)
            fits = len(lead) + GENERATED_QUESTION_TOKENS <= decoder.room_after(group)
            if fits and not fault_of_text(group.text, group.ending):
                passage, sample = samples[number]
                stream = stream_key(passage.id, sample, "question")
                numbers[decoder.follow(group, lead, stream, GENERATED_QUESTION_TOKENS)] = number
        return [(answers.get(number), questions.get(number)) for number in range(len(samples))]

    def _search(self, passages: Sequence[Passage]) -> list[list[WrittenQuestion]]:
        """Search for the likeliest answers, keep those that differ most, and search for their questions."""
        written: dict[str, list[WrittenQuestion]] = {passage.id: [] for passage in passages}
        prompts: dict[str, Prompt] = {}
        for passage in passages:
            prompt = self._prompt(passage.text, ANSWER_CUE)
            if len(prompt) + self._tail <= self.model.context:
                prompts[passage.id] = prompt
            else:
                written[passage.id].append(WrittenQuestion("", "", _LONG_PASSAGE))
        chosen: list[tuple[str, str, Prompt]] = []  # passage, answer, and the prompt for its question
        answers_of = zip(prompts.items(), self._likeliest_answers(prompts.values()), strict=True)
        for (name, prompt), answers in answers_of:
            texts = [self._text(answer) for answer in answers]
            faults = [self._fault(answer) for answer in answers]
            good = ["" if fault else text for text, fault in zip(texts, faults, strict=True)]
            places = diverse(good, self._options.questions)
            for place, (answer, text, fault) in enumerate(zip(answers, texts, faults, strict=True)):
                if place not in places:
                    written[name].append(WrittenQuestion(text, "", fault or NOT_CHOSEN))
                    continue
                begun = (*prompt, *answer.tokens[:-1], *self._lead(answer.tokens))
                if len(begun) + GENERATED_QUESTION_TOKENS <= self.model.context:
                    chosen.append((name, text, begun))
                else:
                    written[name].append(WrittenQuestion(text, "", _LONG_ANSWER))
        questions = self._likeliest_questions([begun for *_, begun in chosen])
        for (name, text, _), question in zip(chosen, questions, strict=True):
            written[name].append(WrittenQuestion(text, self._text(question), self._fault(question)))
        return list(written.values())

    def _likeliest_answers(self, prompts: Iterable[Prompt]) -> list[list[Continuation]]:
        """The answers of each prompt, compared by the probability of the whole answer."""
        beams = self._options.beams
        return self._search_texts(prompts, GENERATED_ANSWER_TOKENS, beams, count=beams, length_penalty=0.0)

    def _likeliest_questions(self, prompts: Iterable[Prompt]) -> list[Continuation]:
        """The question of each prompt with an answer, compared by the mean log-probability of its tokens."""
        found = self._search_texts(
            prompts, GENERATED_QUESTION_TOKENS, QUESTION_BEAMS, count=1, length_penalty=1.0
        )
        return [questions[0] if questions else Continuation() for questions in found]

    def _search_texts(
        self, prompts: Iterable[Prompt], max_tokens: int, beams: int, count: int, length_penalty: float
    ) -> list[list[Continuation]]:
        """The likeliest texts behind each prompt, up to a quotation mark."""
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
        """The tokens that the model reads between an answer and its question, instead of the last one drawn.

        That token ended the answer with a quotation mark; what it has before the mark, such as the full stop
        of ``."``, is part of the answer and is read first.
        """
        last = self.model.decode(answer[-1:]).partition(CLOSING_QUOTE)[0]
        return self._behind_line_break(last + QUESTION_CUE)

    def _behind_line_break(self, text: str) -> list[int]:
        """The tokens of a text that follows another: alone it may get others, and special ones around it."""
        before, joined = self.model.encode("x\n"), self.model.encode("x\n" + text)
        tokens = joined[common(before, joined) :]
        while tokens and tokens[-1] in self.model.end_tokens:
            tokens.pop()
        return tokens

    def _prompt(self, passage: str, begun: str) -> Prompt:
        """The tokens of the instruction with the passage, and of the beginning of the model's output."""
        instruction = self._options.instruction
        before = prompt_of_examples(self._options.examples, instruction)
        if self._options.chat:
            return tuple(self.model.encode_chat(before + instruction.replace("{passage}", passage), begun))
        return tuple(self.model.encode(before + instructed_prompt(passage, begun, instruction)))


def _written(answer: Group | None, question: Group | None) -> WrittenQuestion:
    if answer is None:
        return WrittenQuestion("", "", _LONG_PASSAGE)
    if question is None:
        reason = fault_of_text(answer.text, answer.ending) or _LONG_ANSWER
        return WrittenQuestion(answer.text.strip(), "", reason)
    fault = fault_of_text(question.text, question.ending)
    return WrittenQuestion(answer.text.strip(), question.text.strip(), fault)
