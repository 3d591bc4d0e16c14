"""Prompt formats. A format converts the messages of a game to token ids, and completions back to text.

In both formats, the prompt of a later stage starts with all earlier tokens of the attempt. An attempt is therefore one
token sequence, nothing is retokenised, and the inference engine can use its prefix cache.

A tokenizer here is a Hugging Face tokenizer that the caller passes in (this module imports none).
"""

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from sparring.core.errors import SparringError
from sparring.core.interfaces import Message, PromptFormat
from sparring.core.stages import REASONING_STAGES

PAD, END, PROBLEM, ATTACK, TESTS = "<pad>", "<end>", "<p>", "<t>", "<w>"
STAGE_MARKERS = tuple(f"<s{stage.number}>" for stage in REASONING_STAGES)
MARKER_TOKENS = (PAD, END, PROBLEM, *STAGE_MARKERS, ATTACK, TESTS)

_PLAIN_TEMPLATE = (
    "{% for m in messages %}### {{ m['role'] | capitalize }}\n{{ m['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### Assistant\n{% endif %}"
)
FENCE = "```"
"""Marks the begin and the end of a code block in a chat answer."""
_NEXT_USER = "### User\n"
"""The heading with which a base model begins to write the next user message itself."""
_TAIL = 16
"""Maximum number of tokens of this heading, with a margin."""
_SENTINEL = "\u2063SAID\u2063"


class _Plain:
    """Removes the tokenizer's special tokens from a text. The other player's prompt may contain what one player wrote,
    which must not end the message there or begin a message of another role."""

    def __init__(self, tokenizer: Any) -> None:
        # Some published tokenizers list "" as a special token. Every text contains it, and it is no token.
        self._special = tuple(filter(None, tokenizer.all_special_tokens))

    def __call__(self, text: str) -> str:
        while any(token in text for token in self._special):  # without one token, the rest may form another
            for token in self._special:
                text = text.replace(token, "")
        return text


class TaggedFormat:
    """Prompt format for models with marker tokens: a message and its answer are <p>message<w>answer<end>, or have the
    markers that the message names.

    Example, the multi-stage game: <p>description<s1>...<s2>...<s5>code<end> and <t>description<w>tests<end>.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._plain = tokenizer, _Plain(tokenizer)
        self._id = {marker: tokenizer.convert_tokens_to_ids(marker) for marker in MARKER_TOKENS}
        self._structural = tuple(self._id[m] for m in (END, *STAGE_MARKERS))

    def say(self, tokens: Sequence[int], message: Message) -> list[int]:
        opens, asks = message.marks
        said = [*tokens, *([self._id[opens]] if opens else []), *self._encode(message.brief)]
        closed = not message.brief and said[-1:] == [self._id[asks]]  # the model wrote the marker itself
        return said if closed else [*said, self._id[asks]]

    def shown(self, message: Message) -> str:
        return message.brief

    def stop_token_ids(self) -> tuple[int, ...]:
        return self._structural

    def stop_texts(self, begins: str = "") -> tuple[str, ...]:
        return ()

    def text(self, completion_tokens: Sequence[int], begins: str = "") -> str:
        return self._tokenizer.decode(list(completion_tokens), skip_special_tokens=True)

    def completion(self, text: str, closes: str = END) -> list[int]:
        return [*self._encode(text), self._id[closes]]

    def _encode(self, text: str) -> list[int]:
        # the message of most stages is a marker alone
        return self._tokenizer.encode(self._plain(text), add_special_tokens=False) if text else []


class ChatFormat:
    """Prompt format for instruction models: a user message and an assistant message, in the model's own chat template.

    If the tokenizer has several templates, the one named "default" is used. If it has none, as with base models, a plain
    template is used: the prompt then begins with the tokenizer's BOS token if it has one, and the model's turn ends as
    soon as it writes the heading of the next user message.
    """

    def __init__(self, tokenizer: Any, end_token_ids: Sequence[int] = ()) -> None:
        """Reads the template and the end tokens.

        Args:
            end_token_ids: the end tokens in the model's generation config, besides the tokenizer's own.

        Raises SparringError if the template refuses a conversation of a user and an assistant.
        """
        self._tokenizer, self._plain = tokenizer, _Plain(tokenizer)
        self._is_base = not tokenizer.chat_template
        self.template: str = _PLAIN_TEMPLATE if self._is_base else _default_template(tokenizer)
        self._begin = [tokenizer.bos_token_id] if self._is_base and tokenizer.bos_token else []
        self._stop = self._end_of_turn_ids(end_token_ids)

    def say(self, tokens: Sequence[int], message: Message) -> list[int]:
        begun = self._encode(message.begins)
        if not tokens:
            return [*self._begin, *self._encode(self._render([_user(message.full)])), *begun]
        between = self._between(message.full)
        _, heading, after = self._tokenizer.decode(tokens[-_TAIL:]).rpartition(_NEXT_USER)
        if self._is_base and heading and not after.strip():  # the last token may be longer than the heading
            between = between.split(_NEXT_USER, 1)[1]
        ids = self._encode(between)
        if ids and tokens[-1] == ids[0]:  # the model ended its turn itself
            ids = ids[1:]
        return [*tokens, *ids, *begun]

    def shown(self, message: Message) -> str:
        return message.full

    def stop_token_ids(self) -> tuple[int, ...]:
        return self._stop

    def stop_texts(self, begins: str = "") -> tuple[str, ...]:
        # not the tokens of the fence: with `` and ` in place of ``` a model learned to go on after its program
        closing = (FENCE,) if begins.startswith(FENCE) else ()
        return (*closing, _NEXT_USER) if self._is_base else closing

    def text(self, completion_tokens: Sequence[int], begins: str = "") -> str:
        tokens = [*self._encode(begins), *completion_tokens]
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text.partition(_NEXT_USER)[0] if self._is_base else text

    def completion(self, text: str, closes: str = END) -> list[int]:
        return [*self._encode(text), self._stop[0]]

    def _between(self, instruction: str) -> str:
        """Returns the template's text between two assistant messages, which contains the user message with the
        instruction."""
        messages = [_user("?"), {"role": "assistant", "content": _SENTINEL}, _user(instruction)]
        return self._render(messages).split(_SENTINEL, 1)[1]

    def _end_of_turn_ids(self, end_token_ids: Sequence[int]) -> tuple[int, ...]:
        """Returns the special token with which the template ends an assistant turn, if there is one, then all end tokens
        of the tokenizer and the model."""
        closing = self._encode(self._between("?"))[:1]
        special = [i for i in closing if i in self._tokenizer.all_special_ids]
        own = self._tokenizer.eos_token_id
        return tuple(dict.fromkeys([*special, *([] if own is None else [own]), *end_token_ids]))

    def _render(self, messages: list[dict[str, str]]) -> str:
        messages = [{**message, "content": self._plain(message["content"])} for message in messages]
        try:
            return self._tokenizer.apply_chat_template(
                messages, chat_template=self.template, tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise SparringError(
                f"{self._tokenizer.name_or_path}: its chat template refuses a conversation of user and assistant "
                f"({error}): give a model whose template takes one, or edit chat_template in its tokenizer's files"
            ) from error

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False) if text else []


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def _default_template(tokenizer: Any) -> str:
    """Returns the tokenizer's default template. Raises SparringError if it has several and none is the default."""
    try:
        return tokenizer.get_chat_template()
    except ValueError as error:
        raise SparringError(
            f"{tokenizer.name_or_path}: has several chat templates and none is named 'default': rename the one for "
            "conversations in its tokenizer's files"
        ) from error


def served_template(tokenizer: Any, policy: str, staged: bool) -> str | None:
    """Returns the chat template for a server that renders messages without this module; None if the tokenizer's own
    template is right. For a model with marker tokens, the template renders the last message only, between the markers
    that the policy was trained on.

    Args:
        policy: name of the policy.
        staged: whether the policy was trained in the multi-stage game.
    """
    if not isinstance(format_for(tokenizer), TaggedFormat):
        return None if tokenizer.chat_template else _PLAIN_TEMPLATE
    opens, asks = PROBLEM, TESTS
    if staged:
        opens, asks = (ATTACK, TESTS) if policy == "discriminator" else (PROBLEM, STAGE_MARKERS[0])
    return f"{opens}{{{{ messages[-1]['content'] }}}}{asks}"


def format_for(tokenizer: Any, end_token_ids: Sequence[int] = ()) -> PromptFormat:
    """Returns a TaggedFormat if the tokenizer has all marker tokens, else a ChatFormat.

    end_token_ids: see ChatFormat.
    """
    vocabulary = tokenizer.get_vocab()
    if all(marker in vocabulary for marker in MARKER_TOKENS):
        return TaggedFormat(tokenizer)
    return ChatFormat(tokenizer, end_token_ids)
