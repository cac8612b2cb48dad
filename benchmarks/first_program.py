"""Runs the authors' program of DINO, unchanged, with the transformers of today.

    python benchmarks/first_program.py CHECKOUT --model_name FOLDER ...

CHECKOUT is a copy of https://github.com/timoschick/dino; the other arguments are those of its ``dino.py``. It
was written for transformers 4.2.1, which only runs beside a torch and a Python of that time and knows no
Llama models. So the names that it imports from there are put in their places: its ``GPT2LMHeadModel`` is the
class of the given model, with the few functions of the old ``generate`` that the program calls or replaces,
and its ``GPT2Tokenizer`` loads the model's tokenizer. What the program defines itself (the steering, the loop
that draws tokens, and what it keeps) is not touched, but for one attribute: without it, its newest version
ends with an AttributeError at the first text.
"""

import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoTokenizer,
    GenerationMixin,
    LogitsProcessorList,
    MinLengthLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


def main() -> None:
    checkout, arguments = Path(sys.argv[1]), sys.argv[2:]
    prepare(checkout, arguments[arguments.index("--model_name") + 1])
    sys.argv = [str(checkout / "dino.py"), *arguments]
    runpy.run_path(sys.argv[0], run_name="__main__")


def prepare(checkout: Path, model: str) -> Any:
    """Make the program's modules importable for the model of a folder; returns its module ``modeling``."""
    old: Any = ModuleType("transformers.generation_utils")
    old.GenerationMixin = GenerationMixin
    # The program only names these types, in annotations and for outputs that it does not ask for.
    old.SampleOutput = old.SampleEncoderDecoderOutput = old.SampleDecoderOnlyOutput = dict
    sys.modules |= {old.__name__: old, "openai": ModuleType("openai")}
    base = getattr(transformers, AutoConfig.from_pretrained(model).architectures[0])
    names: Any = sys.modules["transformers"]  # loading a class may have put another module in this place
    names.GPT2LMHeadModel = with_old_generate(base)
    names.GPT2Tokenizer = OldTokenizer
    sys.path.insert(0, str(checkout.resolve()))
    import modeling  # type: ignore[import-not-found]  # the program's own, on the path only now

    modeling.GPT2Wrapper.model = property(lambda wrapper: wrapper)
    return modeling


class OldTokenizer:
    """Loads a tokenizer that also has the old name of encoding a batch."""

    @staticmethod
    def from_pretrained(model: str) -> Any:
        """The tokenizer of a folder."""
        tokenizer = AutoTokenizer.from_pretrained(model)
        tokenizer.batch_encode_plus = tokenizer.__call__
        return tokenizer


def with_old_generate(base: Any) -> Any:
    """A class of models with what the program needs of the ``generate`` of transformers 4.2.1."""

    class OldGenerate(base):  # type: ignore[misc]  # a class that is known at run time only
        def _get_logits_processor(self, least: int) -> LogitsProcessorList:
            return LogitsProcessorList([MinLengthLogitsProcessor(least, self.config.eos_token_id)])

        @torch.no_grad()
        def generate(
            self, input_ids: Tensor, min_length: int, max_length: int, top_k: int, top_p: float, **given: Any
        ) -> Tensor:
            """Draw tokens by the program's ``sample``, truncated by top-k, then by top-p."""
            assert given.pop("do_sample")
            truncate = LogitsProcessorList()
            if top_k:
                truncate.append(TopKLogitsWarper(top_k))
            if 0 < top_p < 1:
                truncate.append(TopPLogitsWarper(top_p))
            drawn: Tensor = self.sample(
                input_ids,
                logits_processor=self._get_logits_processor(min_length),
                logits_warper=truncate,
                max_length=max_length,
                pad_token_id=self.config.pad_token_id,
                eos_token_id=self.config.eos_token_id,
                output_attentions=False,
                output_hidden_states=False,
                output_scores=False,
                return_dict_in_generate=False,
                **given,
            )
            return drawn

        def prepare_inputs_for_generation(
            self, input_ids: Tensor, attention_mask: Tensor, past_key_values: Any = None
        ) -> dict[str, Any]:
            positions = (attention_mask.cumsum(1) - 1).clamp(min=0)
            if past_key_values is not None:
                input_ids, positions = input_ids[:, -1:], positions[:, -1:]
            return {
                "input_ids": input_ids,
                "attention_mask": attention_mask,
                "position_ids": positions,
                "past_key_values": past_key_values,
                "use_cache": True,
                "logits_to_keep": 1,  # the old one computed those of all tokens of a prompt
            }

        def _update_model_kwargs_for_generation(
            self, outputs: Any, given: dict[str, Any], is_encoder_decoder: bool
        ) -> dict[str, Any]:
            assert not is_encoder_decoder
            mask = given["attention_mask"]
            longer = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            return {"attention_mask": longer, "past_key_values": outputs.past_key_values}

        def _init_sequence_length_for_generation(
            self, input_ids: Tensor, max_length: int
        ) -> tuple[Tensor, Tensor, int]:
            rows, width = input_ids.shape
            return input_ids.new_full((rows,), max_length), input_ids.new_ones(rows), width

        def _update_seq_length_for_generation(
            self, lengths: Tensor, unfinished: Tensor, length: int, ended: Tensor
        ) -> tuple[Tensor, Tensor]:
            lengths = torch.where(ended & unfinished.bool(), length, lengths)
            return lengths, unfinished * ~ended

    return OldGenerate


if __name__ == "__main__":
    main()
