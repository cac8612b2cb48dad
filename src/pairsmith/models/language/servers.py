"""The requests to servers of language models: to llama.cpp's, to vLLM, and to any with OpenAI's protocol."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from pairsmith.core.errors import ModelError
from pairsmith.models.language.answers import InvalidAnswer, choices, number, string, token_ids
from pairsmith.models.language.chats import chat_tokens
from pairsmith.models.language.protocols import Prompt

T = TypeVar("T")


class Ask(Protocol):
    """Sends requests."""

    def __call__(self, path: str, body: dict[str, Any], read: Callable[[dict[str, Any]], T]) -> T:
        """Send a request until ``read`` accepts the answer, and return what it read."""


UNKNOWN_CONTEXT = 2**31
"""The context in tokens of a server that does not tell it; the server says when a prompt is too long."""

MOST_SENT = 10_000_000
"""Largest prompt in characters that is sent to such a server: some two million tokens of English."""

LIKELIEST_TOKENS = 1000
"""Number of likeliest tokens among which a token is searched whose probability the server does not report."""

CERTAIN = 1000.0
"""Added to the logit of a token, which is then drawn; the server reports its probability without this."""

_ADVICE = "use vLLM or llama.cpp's server, or give --decay 0, which samples texts without steering"
"""What to do if a server does not send what a way of steering needs."""

_NEARLY_ONE = 1 - 1e-9
"""Largest probability of the end token, so that something is left for the other tokens."""

_BRACKETS = ("<", "[")
"""The name of each special token contains one of these, as in ``</s>`` and ``[INST]``."""


class OpenAIServer:
    """Any server with OpenAI's completions. It takes prompts as text only; a token is a byte of UTF-8.

    Names of special tokens in a prompt, such as ``</s>``, become these tokens in most such servers.
    """

    form = "OpenAI's"
    context = UNKNOWN_CONTEXT

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt."""
        return list(text.encode("utf-8", "surrogatepass"))

    def encode_chat(self, message: str, answer: str) -> list[int]:
        """The tokens of a chat in the model's template, ending with the given beginning of the answer."""
        del message, answer
        raise ModelError("a task of `format: chat` needs --steering certified with a server")

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return bytes(tokens).decode("utf-8", "surrogatepass")

    def drawing(self, prompt: Prompt, top_k: int) -> dict[str, Any]:
        """The body of a request to sample a text: the prompt, and top-k unless it is 0."""
        return {"prompt": self.decode(prompt), **({"top_k": top_k} if top_k else {})}

    def likeliest(self, prompts: Sequence[Prompt], count: int) -> list[dict[int, float]]:
        """The likeliest next tokens of prompts and their log-probabilities, up to ``count`` each."""
        del prompts, count
        raise ModelError("lists of likeliest tokens need a server with /tokenize; give --steering reranked")

    def log_probabilities(self, prompts: Sequence[Prompt], text: str) -> list[float]:
        """The log-probability of ``text`` after each prompt, summed over the tokens that begin in it."""
        begun = [self.decode(prompt) for prompt in prompts]

        def read(place: int, choice: dict[str, Any]) -> float:
            return _sum_between(choice, len(begun[place]), len(begun[place]) + len(text))

        return self._scored([prompt + text for prompt in begun], read, echo=True)

    def _scored(
        self,
        prompts: Sequence[Any],
        read: Callable[[int, dict[str, Any]], T],
        logprobs: int = 1,
        **options: Any,
    ) -> list[T]:
        """Request one more token after each prompt, with log-probabilities; returns what ``read`` reads.

        ``read`` is called with the number of each prompt and its choice.
        """
        body = {"prompt": prompts, "max_tokens": 1, "temperature": 1.0, "logprobs": logprobs, **options}

        def read_all(answer: dict[str, Any]) -> list[T]:
            return [read(place, choice) for place, choice in enumerate(choices(answer, len(prompts)))]

        return self._ask("v1/completions", body, read_all)


def _sum_between(choice: dict[str, Any], start: int, end: int) -> float:
    """The sum of the log-probabilities of the tokens that begin between two places of the echoed text."""
    logprobs = _logprobs(choice)
    offsets, values = logprobs.get("text_offset"), logprobs.get("token_logprobs")
    if not isinstance(values, list):
        raise InvalidAnswer("no log-probabilities of tokens (token_logprobs)", _ADVICE)
    if not isinstance(offsets, list) or any(type(at) is not int or at < 0 for at in offsets):
        raise InvalidAnswer("no positions of tokens (text_offset)", _ADVICE)
    if len(offsets) != len(values):
        raise InvalidAnswer(f"no log-probability for each of {len(offsets)} tokens but {len(values)}")
    scored = [value if value is None else number(value) for value in values]
    inside = [value for at, value in zip(offsets, scored, strict=True) if start <= at < end]
    # Without an echo only the one token that was drawn is scored.
    if len(scored) < 2 or None in inside:
        raise InvalidAnswer("no log-probabilities of the prompt (it ignores echo)", _ADVICE, tries=1)
    return sum(value for value in inside if value is not None)


def _logprobs(choice: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(logprobs := choice.get("logprobs"), dict):
        raise InvalidAnswer("no log-probabilities", _ADVICE)
    return logprobs


class VLLMServer(OpenAIServer):
    """vLLM, with prompts as the model's own tokens.

    Names of special tokens in a text become these tokens, as requests to vLLM cannot say otherwise.
    """

    form = "vLLM's"

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        context = ask("tokenize", {"prompt": ""}, lambda answer: answer.get("max_model_len"))
        self.context = context if isinstance(context, int) else self.context

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt."""
        return self._ask("tokenize", {"prompt": text}, token_ids)

    def encode_chat(self, message: str, answer: str) -> list[int]:
        """The tokens of a chat in the model's template, ending with the given beginning of the answer."""
        chat = {"messages": [{"role": "user", "content": message}], "add_generation_prompt": True}
        added = {"prompt": answer, "add_special_tokens": False}
        return [*self._ask("tokenize", chat, token_ids), *self._ask("tokenize", added, token_ids)]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self._ask("detokenize", {"tokens": list(tokens)}, lambda answer: string(answer, "prompt"))

    def likeliest(self, prompts: Sequence[Prompt], count: int) -> list[dict[int, float]]:
        """The likeliest next tokens of prompts and their log-probabilities, up to ``count`` each."""
        rows = [list(prompt) for prompt in prompts]

        def read(_: int, choice: dict[str, Any]) -> dict[int, float]:
            lists = _logprobs(choice).get("top_logprobs")
            listed = lists[0] if isinstance(lists, list) and lists else None
            if not isinstance(listed, dict) or not listed:
                raise InvalidAnswer("no list of likeliest tokens (top_logprobs)", _ADVICE)
            named = {name.removeprefix("token_id:"): number(p) for name, p in listed.items()}
            if not all(name.isdecimal() for name in named):
                raise InvalidAnswer("no numbers of tokens (return_tokens_as_token_ids)", _ADVICE)
            # A server may add the token it drew, however unlikely, which must not count as the list's last.
            return {int(name): p for name, p in sorted(named.items(), key=lambda item: -item[1])[:count]}

        return self._scored(rows, read, count, return_tokens_as_token_ids=True)


class LlamaCppServer(OpenAIServer):
    """llama.cpp's server, with prompts as the model's own tokens."""

    form = "llama.cpp's"

    def __init__(self, ask: Ask, properties: Mapping[str, Any]) -> None:
        super().__init__(ask)
        context = properties["default_generation_settings"].get("n_ctx")
        self.context = context if isinstance(context, int) and context > 0 else self.context
        ends = self._tokenize(properties.get("eos_token") or "", parse_special=True)
        self._end = ends[0] if len(ends) == 1 else None
        self._letter = self._tokenize("a", parse_special=False)[-1]

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt, after the special tokens that the model expects before a text.

        The name of a special token in the text, such as ``</s>``, is ordinary text.
        """
        body = {"content": text, "add_special": True, "parse_special": False}
        return self._ask("tokenize", body, token_ids)

    def _tokenize(self, text: str, *, parse_special: bool) -> list[int]:
        body = {"content": text, "add_special": False, "parse_special": parse_special}
        return self._ask("tokenize", body, token_ids)

    def encode_chat(self, message: str, answer: str) -> list[int]:
        """The tokens of a chat in the model's template, ending with the given beginning of the answer."""

        def render(message: str) -> str:
            chat = {"messages": [{"role": "user", "content": message}]}
            return self._ask("apply-template", chat, lambda said: string(said, "prompt"))

        # Most texts have no such name. ``chat_tokens`` would need two more requests to find this out.
        if not any(bracket in message + answer for bracket in _BRACKETS):
            return self._tokenize(render(message) + answer, parse_special=True)
        return chat_tokens(self._tokenize, render, message, answer)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self._ask("detokenize", {"tokens": list(tokens)}, lambda answer: string(answer, "content"))

    def drawing(self, prompt: Prompt, top_k: int) -> dict[str, Any]:
        """The body of a request to sample a text; ``top_k`` 0 means no top-k."""
        # The server's default min_p would drop tokens with less than 1/20 of the likeliest one's probability.
        return {"prompt": list(prompt), "top_k": top_k, "min_p": 0.0, "ignore_eos": True}

    def likeliest(self, prompts: Sequence[Prompt], count: int) -> list[dict[int, float]]:
        """The likeliest next tokens of prompts and their log-probabilities, up to ``count`` each."""
        # The end token is forced to be drawn, as its probability is then reported, however small.
        token = self._letter if self._end is None else self._end
        lists = []
        rows = [list(prompt) for prompt in prompts]
        for drawn, listed in filter(None, self._drawn(rows, token, count + 1, needed=True)):
            others = 0.0
            if self._end is not None:  # the end token is never drawn (D4): the others share its probability
                listed.pop(self._end, None)
                others = math.log1p(-min(math.exp(drawn), _NEARLY_ONE))
            lists.append({token: p - others for token, p in list(listed.items())[:count]})
        return lists

    def log_probabilities(self, prompts: Sequence[Prompt], text: str) -> list[float]:
        """The log-probability of the tokens of ``text`` after each prompt.

        The server cannot score a text. Therefore each token of the text is forced in turn by a large bias on
        its logit, and the server reports the probability that it had without the bias. It reports none for a
        token that is a part of a character. Such a token is searched among the likeliest tokens; if it is not
        one of them, it gets the probability of the last of them.
        """
        sums = [0.0] * len(prompts)
        tokens = self._tokenize(text, parse_special=False)
        for place, token in enumerate(tokens):
            rows = [[*prompt, *tokens[:place]] for prompt in prompts]
            for row, drawn in enumerate(self._drawn(rows, token)):
                if drawn is not None:
                    sums[row] += drawn[0]
                else:
                    (listed,) = self.likeliest([tuple(rows[row])], LIKELIEST_TOKENS)
                    sums[row] += listed.get(token, min(listed.values()))
        return sums

    def _drawn(
        self, prompts: list[list[int]], token: int, count: int = 1, *, needed: bool = False
    ) -> list[tuple[float, dict[int, float]] | None]:
        """The log-probabilities of a token and of the ``count`` likeliest tokens after each prompt.

        The token is forced to be drawn. The result is None for a prompt where the server does not report the
        token; if it is ``needed``, a ``ModelError`` is raised.
        """

        def read(_: int, choice: dict[str, Any]) -> tuple[float, dict[int, float]] | None:
            logprobs = choice.get("logprobs")
            content = logprobs.get("content") if isinstance(logprobs, dict) else None
            drawn = content[0] if isinstance(content, list) and content else None
            if not isinstance(drawn, dict) or drawn.get("id") != token:
                if needed:
                    raise ModelError(
                        "the server does not take logit_bias, or says nothing of an end that is drawn, which "
                        "pairsmith needs; update llama.cpp"
                    )
                return None
            top = drawn.get("top_logprobs")
            if not isinstance(top, list) or not top:
                raise InvalidAnswer("no list of likeliest tokens (top_logprobs)")
            if any(not isinstance(listed, dict) or type(listed.get("id")) is not int for listed in top):
                raise InvalidAnswer("no numbers of tokens (top_logprobs)")
            return number(drawn.get("logprob")), {one["id"]: number(one.get("logprob")) for one in top}

        return self._scored(prompts, read, count, logit_bias=[[token, CERTAIN]], top_k=1)


def server_of(ask: Ask, properties: Any, *, by_tokens: bool) -> OpenAIServer:
    """The protocol of a server, by what the server answers.

    Args:
        ask: sends a request.
        properties: the server's answer to ``/props``; None without one.
        by_tokens: whether the way of steering needs prompts as the model's own tokens.
    """
    said = properties.get("default_generation_settings") if isinstance(properties, dict) else None
    if isinstance(said, dict):
        return LlamaCppServer(ask, properties)
    if not by_tokens:
        return OpenAIServer(ask)
    try:
        return VLLMServer(ask)
    except ModelError as error:
        raise ModelError(
            f"{error}\n--steering certified needs a server with /tokenize, such as vLLM or llama.cpp's; give "
            "--steering reranked if yours returns log-probabilities of prompts (echo), else --decay 0, which "
            "samples texts without steering"
        ) from error
