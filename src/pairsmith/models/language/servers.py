"""The requests that servers of language models understand: llama.cpp's, vLLM's, and any with OpenAI's."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pairsmith.core.errors import ModelError
from pairsmith.models.language.protocols import Prompt

Ask = Callable[[str, dict[str, Any]], Any]
"""Sends a request, given its path and body, and returns the answer."""

LIKELIEST_TOKENS = 1000
"""How many of the likeliest tokens are searched for a token whose probability the server does not report."""

CERTAIN = 1000.0
"""Added to a token's logit, so that it is drawn; a server reports the probability it had before."""

_NEARLY_ONE = 1 - 1e-9
"""The largest probability of an end: some of it is left for the other tokens."""


class OpenAIServer:
    """Any server of OpenAI's completions. It takes texts only, so that here a token is a byte of UTF-8."""

    form = "OpenAI's"
    context = 2**31  # unknown: the server says when a prompt is too long

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
        """The prompt of a text to be drawn, and what a server needs to be told for it; 0 for no top-k."""
        return {"prompt": self.decode(prompt), **({"top_k": top_k} if top_k else {})}

    def likeliest(self, prompts: Sequence[Prompt], count: int) -> list[dict[int, float]]:
        """The likeliest next tokens of prompts and their log-probabilities, up to ``count`` each."""
        del prompts, count
        raise ModelError("lists of likeliest tokens need a server with /tokenize; give --steering reranked")

    def log_probabilities(self, prompts: Sequence[Prompt], text: str) -> list[float]:
        """The log-probability of ``text`` after each prompt, summed over the tokens that begin in it."""
        begun = [self.decode(prompt) for prompt in prompts]
        sums = []
        for prompt, logprobs in zip(begun, self._scored([p + text for p in begun], echo=True), strict=True):
            scored = zip(logprobs["text_offset"], logprobs["token_logprobs"], strict=True)
            end = len(prompt) + len(text)
            sums.append(sum(value for at, value in scored if len(prompt) <= at < end and value is not None))
        return sums

    def _scored(self, prompts: Sequence[Any], logprobs: int = 1, **options: Any) -> list[dict[str, Any]]:
        """What the server says about the log-probabilities of each prompt's tokens and of one more."""
        body = {"prompt": prompts, "max_tokens": 1, "temperature": 1.0, "logprobs": logprobs, **options}
        choices = self._ask("v1/completions", body)["choices"]
        return [choice["logprobs"] for choice in sorted(choices, key=lambda choice: choice["index"])]


class VLLMServer(OpenAIServer):
    """vLLM, asked in the model's own tokens."""

    form = "vLLM's"

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self.context = int(ask("tokenize", {"prompt": ""}).get("max_model_len", self.context))

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt."""
        return [int(token) for token in self._ask("tokenize", {"prompt": text})["tokens"]]

    def encode_chat(self, message: str, answer: str) -> list[int]:
        """The tokens of a chat in the model's template, ending with the given beginning of the answer."""
        chat = {"messages": [{"role": "user", "content": message}], "add_generation_prompt": True}
        begun = self._ask("tokenize", chat)["tokens"]
        added = self._ask("tokenize", {"prompt": answer, "add_special_tokens": False})["tokens"]
        return [int(token) for token in [*begun, *added]]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return str(self._ask("detokenize", {"tokens": list(tokens)})["prompt"])

    def likeliest(self, prompts: Sequence[Prompt], count: int) -> list[dict[int, float]]:
        """The likeliest next tokens of prompts and their log-probabilities, up to ``count`` each."""
        rows = [list(prompt) for prompt in prompts]
        answers = self._scored(rows, count, return_tokens_as_token_ids=True)
        lists = [logprobs["top_logprobs"][0] for logprobs in answers]
        # A server may add the token it drew, however unlikely, which must not count as the list's last.
        top = [sorted(by_token.items(), key=lambda item: -item[1])[:count] for by_token in lists]
        return [{int(name.removeprefix("token_id:")): float(p) for name, p in pairs} for pairs in top]


class LlamaCppServer(OpenAIServer):
    """llama.cpp's server, asked in the model's own tokens whatever the way of steering."""

    form = "llama.cpp's"

    def __init__(self, ask: Ask, properties: Mapping[str, Any]) -> None:
        super().__init__(ask)
        self.context = int(properties["default_generation_settings"].get("n_ctx") or self.context)
        ends = self.encode(properties.get("eos_token") or "", special=False)
        self._end = ends[0] if len(ends) == 1 else None
        self._letter = self.encode("a", special=False)[-1]

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a prompt; ``special``: with those that the model expects before it."""
        body = {"content": text, "add_special": special, "parse_special": True}
        return [int(token) for token in self._ask("tokenize", body)["tokens"]]

    def encode_chat(self, message: str, answer: str) -> list[int]:
        """The tokens of a chat in the model's template, ending with the given beginning of the answer."""
        chat = self._ask("apply-template", {"messages": [{"role": "user", "content": message}]})
        return self.encode(chat["prompt"] + answer, special=False)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return str(self._ask("detokenize", {"tokens": list(tokens)})["content"])

    def drawing(self, prompt: Prompt, top_k: int) -> dict[str, Any]:
        """The prompt of a text to be drawn, and what the server needs to be told for it; 0 for no top-k."""
        # Its own defaults would drop tokens of less than a twentieth of the likeliest one's probability.
        return {"prompt": list(prompt), "top_k": top_k, "min_p": 0.0, "ignore_eos": True}

    def likeliest(self, prompts: Sequence[Prompt], count: int) -> list[dict[int, float]]:
        """The likeliest next tokens of prompts and their log-probabilities, up to ``count`` each."""
        # The end of the text is drawn, so that its probability is said, however small.
        token = self._letter if self._end is None else self._end
        lists = []
        for drawn in self._drawn([list(prompt) for prompt in prompts], token, count + 1):
            if drawn is None or drawn["id"] != token:
                raise ModelError(
                    "the server does not take logit_bias, or says nothing of an end that is drawn, which "
                    "pairsmith needs; update llama.cpp"
                )
            listed = {int(token["id"]): float(token["logprob"]) for token in drawn["top_logprobs"]}
            others = 0.0
            if self._end is not None:  # no text goes on with it (D4), so its share goes to the other tokens
                listed.pop(self._end, None)
                others = math.log1p(-min(math.exp(drawn["logprob"]), _NEARLY_ONE))
            lists.append({token: p - others for token, p in list(listed.items())[:count]})
        return lists

    def log_probabilities(self, prompts: Sequence[Prompt], text: str) -> list[float]:
        """The log-probability of the tokens of ``text`` after each prompt.

        The server scores no given texts: each token is drawn in turn, as its logit is made large, and the
        probability that it had before is reported. The server reports none for a token that is a part of a
        character: such a token is searched among the likeliest ones, and if it is not one of them, it counts
        as being as likely as the last of them.
        """
        sums = [0.0] * len(prompts)
        tokens = self.encode(text, special=False)
        for place, token in enumerate(tokens):
            rows = [[*prompt, *tokens[:place]] for prompt in prompts]
            for number, drawn in enumerate(self._drawn(rows, token)):
                if drawn and drawn["id"] == token:
                    sums[number] += float(drawn["logprob"])
                else:
                    (listed,) = self.likeliest([tuple(rows[number])], LIKELIEST_TOKENS)
                    sums[number] += listed.get(token, min(listed.values()))
        return sums

    def _drawn(self, prompts: list[list[int]], token: int, count: int = 1) -> list[dict[str, Any] | None]:
        """What is said of one token's draw after each prompt, with ``count`` likeliest ones in its place."""
        answers = self._scored(prompts, count, logit_bias=[[token, CERTAIN]], top_k=1)
        return [answer["content"][0] if answer and answer["content"] else None for answer in answers]


def server_of(ask: Ask, properties: Any, *, by_tokens: bool) -> OpenAIServer:
    """What requests are sent to a server in.

    Args:
        ask: sends a request.
        properties: what the server answers to ``/props``; None if nothing.
        by_tokens: whether the way of steering needs the model's own tokens.
    """
    if isinstance(properties, dict) and "default_generation_settings" in properties:
        return LlamaCppServer(ask, properties)
    if not by_tokens:
        return OpenAIServer(ask)
    try:
        return VLLMServer(ask)
    except ModelError as error:
        raise ModelError(
            f"{error}\n--steering certified needs a server with /tokenize, such as vLLM or llama.cpp's; with "
            "others give --steering reranked"
        ) from error
