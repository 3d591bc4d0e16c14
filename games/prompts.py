"""How a model is spoken to. A format maps problems to token ids and completions back to text.

Both formats keep one rule: the prompt of a later stage starts with every token said so far, so that an attempt
is one token sequence, nothing is retokenised, and the engine's prefix cache is hit.

A tokenizer here is a Hugging Face tokenizer, passed in (this module imports none).
"""

from collections.abc import Sequence
from typing import Any

from core.interfaces import Message, PromptFormat
from core.problem import Problem
from games.multistage.stages import REASONING_STAGES

PAD, END, PROBLEM, ATTACK, TESTS = "<pad>", "<end>", "<p>", "<t>", "<w>"
STAGE_MARKERS = tuple(f"<s{stage.number}>" for stage in REASONING_STAGES)
MARKER_TOKENS = (PAD, END, PROBLEM, *STAGE_MARKERS, ATTACK, TESTS)

_PLAIN_TEMPLATE = (
    "{% for m in messages %}### {{ m['role'] | capitalize }}\n{{ m['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### Assistant\n{% endif %}"
)
_SENTINEL = "\u2063SAID\u2063"

_SOLVE = """Solve this problem{how}.

Problem: {description}
Signature: {signature}

{instruction}"""

_ATTACK = """Write tests that expose mistakes in programs that try to solve this problem.

Problem: {description}
Signature: {signature}

Write at most {count} tests, one per line, in one ```python block, each of the form
{form}
with literal arguments only. Prefer inputs on which a plausible but wrong program fails: boundaries, empty
inputs, negative numbers, ties. Every test must hold for a correct solution; no two tests may be the same."""


class _Plain:
    """Text without the tokenizer's special tokens: what one player wrote may stand in the other's prompt, and must not
    end its message or speak for anybody else."""

    def __init__(self, tokenizer: Any) -> None:
        self._special = tuple(tokenizer.all_special_tokens)

    def __call__(self, text: str) -> str:
        while any(token in text for token in self._special):  # taking one out may put another together
            for token in self._special:
                text = text.replace(token, "")
        return text


class TaggedFormat:
    """For models with one marker token per stage: <p>description<s1>...<s2>...<s5>code<end>, and for the
    discriminator <t>description<w>tests<end>. In other games a message and its answer are <p>message<w>answer<end>."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._plain = tokenizer, _Plain(tokenizer)
        self._id = {marker: tokenizer.convert_tokens_to_ids(marker) for marker in MARKER_TOKENS}
        self._structural = tuple(self._id[m] for m in (END, *STAGE_MARKERS))

    def say(self, tokens: Sequence[int], message: Message) -> list[int]:
        return [*tokens, self._id[PROBLEM], *self._encode(message.brief), self._id[TESTS]]

    def generator_prompt(self, problem: Problem, stage: int = 1) -> list[int]:
        marker = self._id[STAGE_MARKERS[stage - 1]]
        return [self._id[PROBLEM], *self._encode(problem.description), marker]

    def next_stage(self, tokens: Sequence[int], stage: int) -> list[int]:
        marker = self._id[STAGE_MARKERS[stage - 1]]
        return list(tokens) if tokens[-1] == marker else [*tokens, marker]

    def discriminator_prompt(self, problem: Problem, max_tests: int) -> list[int]:
        return [self._id[ATTACK], *self._encode(problem.description), self._id[TESTS]]

    def stop_token_ids(self, stage: int) -> tuple[int, ...]:
        return self._structural

    def text(self, completion_tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(completion_tokens), skip_special_tokens=True)

    def completion(self, text: str, stage: int) -> list[int]:
        """Ids of a whole completion for supervised training, its closing marker included."""
        last = stage in (0, len(STAGE_MARKERS))
        return [*self._encode(text), self._id[END if last else STAGE_MARKERS[stage]]]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(self._plain(text), add_special_tokens=False)


class ChatFormat:
    """For instruction models: each stage is a user message, each completion an assistant message, by the
    model's own chat template (a plain one where the tokenizer has none)."""

    def __init__(self, tokenizer: Any, test_format: str) -> None:
        self._tokenizer, self._plain = tokenizer, _Plain(tokenizer)
        self._template = tokenizer.chat_template or _PLAIN_TEMPLATE
        self._form = "f(1, 2)" if test_format == "input_only" else "assert f(1, 2) == 3"
        self._stop = self._end_of_turn_ids()

    def say(self, tokens: Sequence[int], message: Message) -> list[int]:
        if tokens:
            return self._reply(tokens, message.full)
        return self._encode(self._render([{"role": "user", "content": message.full}]))

    def generator_prompt(self, problem: Problem, stage: int = 1) -> list[int]:
        text = _SOLVE.format(
            how=" step by step" if stage < len(REASONING_STAGES) else "",
            description=problem.description,
            signature=problem.function_signature,
            instruction=REASONING_STAGES[stage - 1].instruction,
        )
        return self._encode(self._render([{"role": "user", "content": text}]))

    def next_stage(self, tokens: Sequence[int], stage: int) -> list[int]:
        return self._reply(tokens, REASONING_STAGES[stage - 1].instruction)

    def _reply(self, tokens: Sequence[int], text: str) -> list[int]:
        between = self._between(text)
        if between and tokens[-1] == between[0]:  # the model closed its own turn
            between = between[1:]
        return [*tokens, *between]

    def discriminator_prompt(self, problem: Problem, max_tests: int) -> list[int]:
        text = _ATTACK.format(
            description=problem.description,
            signature=problem.function_signature,
            count=max_tests,
            form=self._form.replace("f(", f"{problem.entry_point}(", 1),
        )
        return self._encode(self._render([{"role": "user", "content": text}]))

    def stop_token_ids(self, stage: int) -> tuple[int, ...]:
        return self._stop

    def text(self, completion_tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(completion_tokens), skip_special_tokens=True)

    def completion(self, text: str, stage: int) -> list[int]:
        """Ids of a whole completion for supervised training, its end-of-turn token included."""
        return [*self._encode(text), self._stop[0]]

    def _between(self, instruction: str) -> list[int]:
        """What the template puts between an assistant message and the next one, with the new user message in it."""
        messages = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": _SENTINEL},
            {"role": "user", "content": instruction},
        ]
        return self._encode(self._render(messages).split(_SENTINEL, 1)[1])

    def _end_of_turn_ids(self) -> tuple[int, ...]:
        """The token with which the template closes an assistant turn, and the tokenizer's own end token."""
        closing = self._between("?")[:1]
        special = [i for i in closing if i in self._tokenizer.all_special_ids]
        return tuple(dict.fromkeys([*special, self._tokenizer.eos_token_id]))

    def _render(self, messages: list[dict[str, str]]) -> str:
        messages = [{**message, "content": self._plain(message["content"])} for message in messages]
        return self._tokenizer.apply_chat_template(
            messages, chat_template=self._template, tokenize=False, add_generation_prompt=True
        )

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)


def format_for(tokenizer: Any, test_format: str) -> PromptFormat:
    """TaggedFormat where the tokenizer knows the stage markers, ChatFormat otherwise."""
    vocabulary = tokenizer.get_vocab()
    if all(marker in vocabulary for marker in MARKER_TOKENS):
        return TaggedFormat(tokenizer)
    return ChatFormat(tokenizer, test_format)
