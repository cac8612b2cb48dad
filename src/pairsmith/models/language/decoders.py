"""The decoder of a language model: one for models in this process, one for models behind a server."""

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from pairsmith.core.errors import ModelError
from pairsmith.data.tasks import Decoding
from pairsmith.data.tasks.spec import QUOTE
from pairsmith.models.language.combine import Rule, rule_of
from pairsmith.models.language.decoder import Draw, Group, MultiPromptDecoder
from pairsmith.models.language.protocols import Prompt, SteerableModel
from pairsmith.models.language.remote import RemoteModel
from pairsmith.models.language.remote_decoder import RemoteDecoder
from pairsmith.models.language.sampling import Sampling


class Decoder(Protocol):
    """Decodes groups as they are added: a ``MultiPromptDecoder`` or a ``RemoteDecoder``."""

    @property
    def room(self) -> int:
        """How much more can be added before more is waiting than is decoded at once; may be negative."""

    def fits(self, prompt: Prompt) -> bool:
        """Whether a prompt leaves room for a text within the model's context, and is not empty."""

    def add(self, group: Group, *, soon: bool = False) -> None:
        """Queue a group; with ``soon``, before the others if its prompts need not be computed again."""

    def finished(self) -> Iterator[Group]:
        """Decode until no group is left; yields each group when it ends, and ``add`` may be called then."""


def make_decoder(
    model: SteerableModel | RemoteModel,
    decoding: Decoding,
    seed: int,
    prompts: Collection[Prompt],
    rows: int | None,
    watch: Callable[[Draw], None] | None = None,
    rule: Rule | None = None,
) -> Decoder:
    """The decoder of a model, which samples by D4 and steers by a rule (D3).

    Args:
        model: the language model. A server's model is steered by self-debiasing only; ``prompts``, ``rows``
            and ``watch`` do not apply to it, and ``rule`` must be None.
        decoding: top-k, top-p, the largest number of tokens, and the rule with its strength.
        seed: seed of every draw, from 0 to 2**63 - 1.
        prompts: all prompts of the groups to come.
        rows: the largest number of prompts that are computed at once; None: as many as fit into memory.
        watch: called with every draw.
        rule: steering rule, used instead of the one that ``decoding`` names.

    Raises:
        ModelError: the model is a server's, and is to be steered by another rule.
    """
    sampling = Sampling(decoding.top_k, decoding.top_p, decoding.max_tokens, QUOTE)
    if isinstance(model, RemoteModel):
        if rule is not None or decoding.rule != "self-debiasing":
            raise ModelError(f"model {model.name}: a server steers by self-debiasing; leave rule out")
        return RemoteDecoder(model, sampling, seed, decay=decoding.decay, floor=decoding.floor)
    rule = rule_of(decoding) if rule is None else rule
    return MultiPromptDecoder(model, rule, sampling, seed, prompts, rows, watch)
