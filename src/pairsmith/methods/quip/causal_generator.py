"""Generate questions with a causal language model that follows an instruction.

passage and instruction -> sampled answers -> a sampled question behind each, with DINO's decoder; or
passage and instruction -> the likeliest answers -> the likeliest question behind each that is chosen (Q2)
"""

from collections.abc import Sequence
from itertools import islice

from pairsmith.core.batches import in_batches
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
from pairsmith.methods.quip.diverse_answers import diverse
from pairsmith.methods.quip.options import BATCH_SIZES, QUESTION_BEAMS, GenerationOptions
from pairsmith.methods.quip.passages import Passage, keep_all
from pairsmith.models.language.beam_search import Continuation, search_continuations
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Ending, Group, MultiPromptDecoder
from pairsmith.models.language.prefixes import common
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
        for batch in in_batches(passages, max(1, size)):
            if self._options.decoding == "beams":
                rejects += keep_all(batch, self._search(batch))
                advance(self._options.tries * len(batch))
                continue
            for _ in range(self._options.tries):
                unfinished = [passage for passage in batch if passage.missing(self._options.questions)]
                rejects += keep_all(unfinished, self._draw(unfinished))
                advance(len(batch))
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
            lead = self._lead(group.tokens)
            fits = len(lead) + GENERATED_QUESTION_TOKENS <= decoder.room_after(group)
            if fits and not _fault(group.text, group.ending, "no answer", "long answer"):
                passage, sample = samples[number]
                stream = stream_key(passage.id, sample, "question")
                numbers[decoder.follow(group, lead, stream, GENERATED_QUESTION_TOKENS)] = number
        return [(answers.get(number), questions.get(number)) for number in range(len(samples))]

    def _search(self, passages: Sequence[Passage]) -> list[list[WrittenQuestion]]:
        """Search for the likeliest answers, keep those that differ most, and search for their questions.

        Q2's other way of decoding.
        """
        prompts = {passage.id: self._prompt(passage.text, ANSWER) for passage in passages}
        written: dict[str, list[WrittenQuestion]] = {name: [] for name in prompts}
        fitting = [name for name, prompt in prompts.items() if len(prompt) + self._tail <= self.model.context]
        for name in prompts.keys() - set(fitting):
            written[name].append(WrittenQuestion("", "", "long passage"))
        answers = self._search_texts(
            [prompts[name] for name in fitting],
            GENERATED_ANSWER_TOKENS,
            beams=self._options.beams,
            count=self._options.beams,
            length_penalty=0.0,  # the likeliest answers; the questions are compared by their mean token
        )
        begun: list[tuple[str, str, Prompt]] = []  # passage, answer, and the prompt for its question
        for name, of_passage in zip(fitting, answers, strict=True):
            texts = [self._text(answer) for answer in of_passage]
            faults = [
                _fault(text, _ending(answer), "no answer", "long answer")
                for text, answer in zip(texts, of_passage, strict=True)
            ]
            chosen = diverse(
                ["" if fault else text for text, fault in zip(texts, faults, strict=True)],
                self._options.questions,
            )
            for place, (text, fault) in enumerate(zip(texts, faults, strict=True)):
                if place not in chosen:
                    written[name].append(WrittenQuestion(text, "", fault or "not chosen"))
            for place in chosen:
                tokens = of_passage[place].tokens
                prompt = (*prompts[name], *tokens[:-1], *self._lead(tokens))
                if len(prompt) + GENERATED_QUESTION_TOKENS <= self.model.context:
                    begun.append((name, texts[place], prompt))
                else:
                    written[name].append(WrittenQuestion(texts[place], "", "long answer"))
        questions = self._search_texts(
            [prompt for *_, prompt in begun],
            GENERATED_QUESTION_TOKENS,
            beams=QUESTION_BEAMS,
            count=1,
            length_penalty=1.0,
        )
        for (name, answer, _), (question,) in zip(begun, questions, strict=True):
            text = self._text(question)
            fault = _fault(text, _ending(question), "no question", "long question")
            written[name].append(WrittenQuestion(answer, text, fault))
        return [written[passage.id] for passage in passages]

    def _search_texts(
        self, prompts: Sequence[Prompt], max_tokens: int, *, beams: int, count: int, length_penalty: float
    ) -> list[list[Continuation]]:
        """The likeliest texts behind each prompt, up to a quotation mark."""
        return search_continuations(
            self.model,
            prompts,
            beams=beams,
            count=count,
            max_tokens=max_tokens,
            ends=self.model.tokens_with(END),
            never=self.model.end_tokens,
            length_penalty=length_penalty,
        )

    def _text(self, continuation: Continuation) -> str:
        return self.model.decode(continuation.tokens).partition(END)[0].strip()

    def _lead(self, answer: Sequence[int]) -> list[int]:
        """The tokens that the model reads between an answer and its question, instead of the last one drawn.

        That token ended the answer with a quotation mark; what it has before the mark, such as the full stop
        of ``."``, is part of the answer and is read first.
        """
        last = self.model.decode(answer[-1:]).partition(END)[0]
        return self._behind_line_break(last + QUESTION)

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
        return tuple(self.model.encode(before + prompt_of(passage, begun, instruction)))


def _written(answer: Group | None, question: Group | None) -> WrittenQuestion:
    if answer is None:
        return WrittenQuestion("", "", "long passage")
    if question is None:
        reason = _fault(answer.text, answer.ending, "no answer", "long answer") or "long answer"
        return WrittenQuestion(answer.text.strip(), "", reason)
    fault = _fault(question.text, question.ending, "no question", "long question")
    return WrittenQuestion(answer.text.strip(), question.text.strip(), fault)


def _ending(continuation: Continuation) -> Ending:
    return "stop" if continuation.ended else "length"


def _fault(
    text: str, ending: Ending | None, nothing: GenerationFault, long: GenerationFault
) -> GenerationFault | None:
    """What is wrong with an answer or a question that ended in this way."""
    if ending != "stop":
        return long if ending == "length" else "unfinished"
    text = text.strip()
    if not text:
        return nothing
    if "\n" in text:
        return "several lines"
    return None if text.isprintable() and "\ufffd" not in text else "unreadable"
