"""How a model is spoken to. A format maps problems to token ids and completions back to text.

Both formats keep one rule: the prompt of a later stage starts with every token said so far, so that an attempt
is one token sequence, nothing is retokenised, and the engine's prefix cache is hit.

A tokenizer here is a Hugging Face tokenizer, passed in (this module imports none).
"""

from collections.abc import Sequence
from typing import Any

from core.interfaces import Message, PromptFormat
from core.stages import REASONING_STAGES

PAD, END, PROBLEM, ATTACK, TESTS = "<pad>", "<end>", "<p>", "<t>", "<w>"
STAGE_MARKERS = tuple(f"<s{stage.number}>" for stage in REASONING_STAGES)
MARKER_TOKENS = (PAD, END, PROBLEM, *STAGE_MARKERS, ATTACK, TESTS)

_PLAIN_TEMPLATE = (
    "{% for m in messages %}### {{ m['role'] | capitalize }}\n{{ m['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### Assistant\n{% endif %}"
)
_SENTINEL = "\u2063SAID\u2063"


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
    """For models with marker tokens: a message and its answer are <p>message<w>answer<end>, or stand between the marks
    that the message names. The multi-stage game: <p>description<s1>...<s2>...<s5>code<end>, <t>description<w>tests<end>."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._plain = tokenizer, _Plain(tokenizer)
        self._id = {marker: tokenizer.convert_tokens_to_ids(marker) for marker in MARKER_TOKENS}
        self._structural = tuple(self._id[m] for m in (END, *STAGE_MARKERS))

    def say(self, tokens: Sequence[int], message: Message) -> list[int]:
        opens, asks = message.marks
        said = [*tokens, *([self._id[opens]] if opens else []), *self._encode(message.brief)]
        closed = not message.brief and said[-1:] == [self._id[asks]]  # the model went on by itself
        return said if closed else [*said, self._id[asks]]

    def stop_token_ids(self) -> tuple[int, ...]:
        return self._structural

    def text(self, completion_tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(completion_tokens), skip_special_tokens=True)

    def completion(self, text: str, closes: str = END) -> list[int]:
        return [*self._encode(text), self._id[closes]]

    def _encode(self, text: str) -> list[int]:
        # most stages are asked for by their mark alone
        return self._tokenizer.encode(self._plain(text), add_special_tokens=False) if text else []


class ChatFormat:
    """For instruction models: a user message and an assistant message, by the model's own chat template (a plain one
    where the tokenizer has none)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._plain = tokenizer, _Plain(tokenizer)
        self.template: str = tokenizer.chat_template or _PLAIN_TEMPLATE
        self._stop = self._end_of_turn_ids()

    def say(self, tokens: Sequence[int], message: Message) -> list[int]:
        if not tokens:
            return self._encode(self._render([{"role": "user", "content": message.full}]))
        between = self._between(message.full)
        if between and tokens[-1] == between[0]:  # the model closed its own turn
            between = between[1:]
        return [*tokens, *between]

    def stop_token_ids(self) -> tuple[int, ...]:
        return self._stop

    def text(self, completion_tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(completion_tokens), skip_special_tokens=True)

    def completion(self, text: str, closes: str = END) -> list[int]:
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
            messages, chat_template=self.template, tokenize=False, add_generation_prompt=True
        )

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)


def served_template(tokenizer: Any, policy: str, staged: bool) -> str | None:
    """The chat template for who renders messages without us; None: the tokenizer's own. A model with marker tokens takes
    one message, the last one, between the marks that the policy was trained on. staged: in the multi-stage game."""
    if not isinstance(format_for(tokenizer), TaggedFormat):
        return None if tokenizer.chat_template else _PLAIN_TEMPLATE
    opens, asks = PROBLEM, TESTS
    if staged:
        opens, asks = (ATTACK, TESTS) if policy == "discriminator" else (PROBLEM, STAGE_MARKERS[0])
    return f"{opens}{{{{ messages[-1]['content'] }}}}{asks}"


def format_for(tokenizer: Any) -> PromptFormat:
    """TaggedFormat where the tokenizer knows the stage markers, ChatFormat otherwise."""
    vocabulary = tokenizer.get_vocab()
    if all(marker in vocabulary for marker in MARKER_TOKENS):
        return TaggedFormat(tokenizer)
    return ChatFormat(tokenizer)
