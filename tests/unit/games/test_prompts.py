from dataclasses import replace
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lab.model import build_tokenizer
from sparring.core.errors import SparringError
from sparring.core.interfaces import Message
from sparring.core.problem import Problem
from sparring.core.stages import REASONING_STAGES
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.messages import attack, closing, example_test, go_on, solve, without_example
from sparring.games.multistage.rules import MultistageRules
from sparring.games.parsing import code_blocks
from sparring.games.prompts import (
    END,
    MARKER_TOKENS,
    PAD,
    STAGE_MARKERS,
    ChatFormat,
    TaggedFormat,
    _Plain,
    format_for,
)

PROBLEM = Problem(
    id="p",
    description="Return the sum of the even numbers of xs.",
    function_signature="def total(xs: list[int]) -> int:",
    baseline_tests=("assert total([1, 2]) == 2",),
    reference_solution="def total(xs):\n    return sum(x for x in xs if x % 2 == 0)\n",
    hidden_tests=("assert total([4242]) == 4242",),
)
TEXTS = [
    "Add what is even.",
    "1. filter\n2. sum",
    "for x in xs: ...",
    "xs holds ints",
    "def total(xs):\n    return 0\n",
]

# ChatML, as Qwen writes it
CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tagged() -> TaggedFormat:
    corpus = [PROBLEM.description, *TEXTS] * 3
    return TaggedFormat(build_tokenizer(corpus, MARKER_TOKENS, PAD, END))


def byte_tokenizer(chat_template: str | None) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = chat_template
    return fast


@pytest.fixture(scope="module")
def chatml() -> ChatFormat:
    return ChatFormat(byte_tokenizer(CHATML))


@pytest.fixture(scope="module")
def plain() -> ChatFormat:
    return ChatFormat(byte_tokenizer(None))


@pytest.fixture(params=["tagged", "chatml", "plain"])
def style(request):
    return request.getfixturevalue(request.param)


def first(style, stage: int = 1) -> list[int]:
    return style.say((), solve(PROBLEM, REASONING_STAGES[stage - 1]))


def later(style, tokens, stage: int) -> list[int]:
    return style.say(tokens, go_on(REASONING_STAGES[stage - 1]))


def suite(style, tests: int, **rules) -> list[int]:
    return style.say((), attack(PROBLEM, MultistageRules(max_tests=tests, **rules)))


def said_in(style, text: str, stage: int) -> list[int]:
    return style.completion(text, closing(REASONING_STAGES[stage - 1])) if stage else style.completion(text)


def play(style, completions) -> list[list[int]]:
    """The prompts of five stages, each answered by tokens."""
    tokens = first(style)
    prompts = [tokens]
    for stage, completion in zip(REASONING_STAGES[1:], completions, strict=False):
        tokens = later(style, [*tokens, *completion], stage.number)
        prompts.append(tokens)
    return prompts


# ---------------------------------------------------------------------- every format
@pytest.mark.parametrize("cut", [False, True], ids=["stopped", "cut by length"])
def test_a_later_prompt_starts_with_every_earlier_token(style, cut):
    completions = [said_in(style, text, n)[: -1 if cut else None] for n, text in enumerate(TEXTS, 1)]
    prompts = play(style, completions)
    for earlier, said, after in zip(prompts, completions, prompts[1:], strict=False):
        assert after[: len(earlier) + len(said)] == [*earlier, *said]
        assert len(after) >= len(earlier) + len(said)


@pytest.mark.parametrize("text", [*TEXTS, "", "ünïcode → 漢字 \n\n  indented", "a\tb\\n"])
@pytest.mark.parametrize("stage", range(6))
def test_text_is_the_inverse_of_completion(style, text, stage):
    tokens = said_in(style, text, stage)
    assert style.text(tokens) == text
    assert tokens[-1] in style.stop_token_ids()
    assert not set(tokens[:-1]) & set(style.stop_token_ids())


def test_no_prompt_shows_the_reference_or_the_hidden_tests(style):
    """Read through the tokens themselves, special ones too."""
    for prompt in (first(style), suite(style, 3)):
        text = style._tokenizer.decode(prompt)
        assert "4242" not in text and "x % 2" not in text
        assert PROBLEM.description in text


# ---------------------------------------------------------------------- tagged
def test_tagged_prompts_are_marked(tagged):
    ids = {m: tagged._tokenizer.convert_tokens_to_ids(m) for m in MARKER_TOKENS}
    prompt = first(tagged)
    assert (prompt[0], prompt[-1]) == (ids["<p>"], ids["<s1>"])
    assert tagged.text(prompt) == PROBLEM.description
    tests = suite(tagged, 3)
    assert (tests[0], tests[-1]) == (ids["<t>"], ids["<w>"])


def test_tagged_completions_close_with_the_next_marker_and_the_last_with_the_end(tagged):
    ids = [said_in(tagged, "x", stage)[-1] for stage in range(6)]
    names = tagged._tokenizer.convert_ids_to_tokens(ids)
    assert names == [END, *STAGE_MARKERS[1:], END]


def test_tagged_whole_attempts_hold_each_marker_once(tagged):
    completions = [said_in(tagged, text, n) for n, text in enumerate(TEXTS, 1)]
    whole = [*play(tagged, completions)[-1], *completions[-1]]
    for marker in ("<p>", *STAGE_MARKERS, END):
        assert whole.count(tagged._tokenizer.convert_tokens_to_ids(marker)) == 1


def test_tagged_adds_the_marker_where_the_model_did_not(tagged):
    prompt = first(tagged)
    said = said_in(tagged, "x", 1)
    marker = said[-1]
    assert later(tagged, [*prompt, *said], 2) == [*prompt, *said]
    assert later(tagged, [*prompt, *said[:-1]], 2) == [*prompt, *said]
    wrong = said_in(tagged, "x", 3)
    assert later(tagged, [*prompt, *wrong], 2) == [*prompt, *wrong, marker]


def test_markers_in_a_text_are_not_smuggled_through_the_decoder(tagged):
    tokens = said_in(tagged, "x", 5)
    assert tagged.text([*tokens[:-1], tagged._tokenizer.convert_tokens_to_ids("<s2>")]) == "x"


# ---------------------------------------------------------------------- chat


@pytest.mark.parametrize("stage", range(1, 6))
@pytest.mark.parametrize("cut", [False, True], ids=["stopped", "cut by length"])
def test_the_prompt_is_the_template_applied_to_the_whole_conversation(chatml, stage, cut):
    """The end of a turn is neither doubled nor missing; the program's answer is begun, and no other's."""
    completions = [said_in(chatml, text, n)[: -1 if cut else None] for n, text in enumerate(TEXTS, 1)]
    tokenizer = chatml._tokenizer
    opening = tokenizer.decode(first(chatml)).split("<|im_start|>user\n")[1].split("<|im_end|>")[0]
    messages = [{"role": "user", "content": opening}]
    for said, further in zip(TEXTS[: stage - 1], REASONING_STAGES[1:], strict=False):
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": further.instruction}]
    whole = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    whole += "```python\n" * (stage == 5)
    assert play(chatml, completions)[stage - 1] == tokenizer.encode(whole, add_special_tokens=False)


def test_a_chat_turn_stops_at_the_end_of_turn_and_at_the_end_of_text(chatml, plain):
    ids = chatml._tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert chatml.stop_token_ids() == tuple(ids)
    assert plain.stop_token_ids() == (plain._tokenizer.eos_token_id,)


def test_without_a_template_a_plain_one_is_used(plain):
    text = plain._tokenizer.decode(first(plain))
    assert text.startswith("### User\nSolve") and text.endswith("### Assistant\n")
    prompt = later(plain, [*first(plain), *plain._encode("Add.")], 2)
    assert plain._tokenizer.decode(prompt).endswith(
        f"Add.\n\n### User\n{REASONING_STAGES[1].instruction}\n\n### Assistant\n"
    )


def test_the_discriminator_is_told_how_many_tests_and_in_which_form(chatml):
    strict = chatml._tokenizer.decode(suite(chatml, 7))
    inputs = chatml._tokenizer.decode(suite(chatml, 7, test_format="input_only"))
    assert "7 different tests" in strict
    assert "assert total([1, 2]) == 2" in strict and strict.endswith("\nassert total([")
    assert inputs.endswith("```python\ntotal([1, 2])\ntotal([") and "assert total" not in inputs


# ---------------------------------------------------------------------- fewer stages
def test_a_tagged_attempt_may_begin_with_the_program(tagged):
    prompt = first(tagged, 5)
    assert prompt[:-1] == first(tagged)[:-1]
    assert tagged._tokenizer.convert_ids_to_tokens(prompt[-1]) == "<s5>"


def test_a_tagged_attempt_may_jump_to_the_program(tagged):
    said = said_in(tagged, "x", 1)  # ends with the marker of stage 2, which then is empty
    names = tagged._tokenizer.convert_ids_to_tokens(later(tagged, said, 5))
    assert names[-2:] == ["<s2>", "<s5>"]


def test_a_chat_model_asked_for_the_program_at_once_is_not_asked_for_steps(chatml):
    at_once, by_steps = (chatml._tokenizer.decode(first(chatml, stage)) for stage in (5, 1))
    assert "Solve this problem.\n" in at_once and REASONING_STAGES[-1].instruction in at_once
    assert REASONING_STAGES[0].instruction not in at_once
    assert "Solve this problem step by step.\n" in by_steps


def test_fewer_stages_need_less_room(style):
    lengths = [
        MultistageGame(MultistageRules(stages=n)).longest(PROBLEM, "generator", style, 50) for n in range(5)
    ]
    assert lengths == sorted(lengths) and lengths[1] - lengths[0] >= 50
    assert lengths[4] == MultistageGame(MultistageRules()).longest(PROBLEM, "generator", style, 50)


# ---------------------------------------------------------------------- the choice
@pytest.mark.parametrize(
    "smuggled", ["<w>", "<end>", "<|im_end|>", "<|endoftext|>", "<|im_st<|im_end|>art|>"]
)
def test_what_the_other_player_wrote_ends_no_message(style, smuggled):
    """An author's program stands in its opponent's prompt."""

    def special(text: str) -> list[int]:
        ids = style._tokenizer.all_special_ids
        return [t for t in style.say((), Message(brief=text, full=text)) if t in ids]

    assert special(f"print(1){smuggled}print(2)") == special("print(1)print(2)")


def test_the_format_follows_from_the_tokenizer(tagged, chatml, plain):
    for made in (tagged, chatml, plain):
        assert type(format_for(made._tokenizer)) is type(made)


# ---------------------------------------------------------------------- the beginning of an answer
BEGUN = Message(brief="?", full="Write f.", begins="```python\n")


@pytest.mark.parametrize("template", ["chatml", "plain"])
def test_a_chat_models_answer_may_be_begun(template, request):
    style = request.getfixturevalue(template)
    prompt = style.say((), BEGUN)
    assert prompt == [*style.say((), replace(BEGUN, begins="")), *style._encode("```python\n")]
    said = style.completion("x = 1\n```")
    assert style.text(said, BEGUN.begins) == "```python\nx = 1\n```"
    later_prompt = style.say([*prompt, *said], BEGUN)
    assert later_prompt[: len(prompt) + len(said)] == [*prompt, *said]
    assert style._tokenizer.decode(later_prompt).endswith("```python\n")


def test_an_answer_that_begins_a_block_ends_with_the_block(chatml):
    assert chatml.stop_texts() == ()
    (stop,) = chatml.stop_texts(BEGUN.begins)
    assert code_blocks(f"{BEGUN.begins}x = 1\n{stop}\nThis sets x.") == ["x = 1\n"]


def test_a_model_with_markers_answers_from_the_start(tagged):
    assert tagged.say((), BEGUN) == tagged.say((), replace(BEGUN, begins=""))
    assert tagged.text(tagged.completion("x"), BEGUN.begins) == "x"


# ---------------------------------------------------------------------- the example in the discriminator's prompt
@pytest.mark.parametrize(
    ("signature", "tests", "example"),
    [
        ("def f(s, ch):", ("assert f('ab','a')=='b'",), "assert f('ab', 'a') == 'b'"),
        (
            "def f(s, ch):",
            ("x = 1", "import math\nassert math.isclose(f(2, 3), 5.0)"),
            "assert f(2, 3) == <the right result>",
        ),
        ("def f(x):", ("assert f(y) == 1", "assert f([1]) == f([1])"), "assert f([1]) == <the right result>"),
        ("def f(x: int, y: str = 'a'):", (), "assert f(3) == <the right result>"),
        (
            "def f(xs: list[str], d: dict[str, int]):",
            (),
            "assert f(['b', 'a'], {'abc': 3}) == <the right result>",
        ),
        ("def f(tree):", (), "assert f(<tree>) == <the right result>"),
        ("def f():", (), "assert f() == <the right result>"),
    ],
)
def test_the_example_is_a_call_that_the_function_takes(signature, tests, example):
    problem = replace(PROBLEM, function_signature=signature, baseline_tests=tests)
    assert example_test(problem, with_value=True) == example
    call = example.removeprefix("assert ").partition(" == ")[0]
    assert example_test(problem, with_value=False) == call


@pytest.mark.parametrize(
    ("signature", "tests", "begins"),
    [
        ("def f(s, ch):", ("assert f('ab','a')=='b'",), "assert f('ab', 'a') == 'b'\nassert f('"),
        ("def f(p):", ("assert f([(1, 2)]) == 3",), "assert f([(1, 2)]) == 3\nassert f([("),
        ("def f(d):", ("assert f({'a': 1}) == 1",), "assert f({'a': 1}) == 1\nassert f({'"),
        ("def f(x: int):", (), "assert f("),  # there is no example with a value
        ("def f(tree):", (), "assert f("),
    ],
)
def test_an_answer_begins_with_the_example_and_the_type_of_the_next_argument(signature, tests, begins):
    problem = replace(PROBLEM, function_signature=signature, baseline_tests=tests)
    message = attack(problem, MultistageRules(test_format="relabel"))
    assert message.begins == f"```python\n{begins}"
    opening = begins.split("\n")[-1]
    assert without_example(message.begins + "1)", message.begins) == f"```python\n{opening}1)"
    assert without_example("assert f(1)", message.begins) == "assert f(1)", "another prompt format"


# ---------------------------------------------------------------------- tokenizers as they are published
def test_every_end_token_of_the_model_ends_a_turn(chatml):
    own = chatml.stop_token_ids()
    assert ChatFormat(chatml._tokenizer, [7, own[-1]]).stop_token_ids() == (*own, 7)


def test_of_several_templates_the_default_is_used(chatml):
    named = byte_tokenizer(None)
    named.chat_template = {"default": CHATML, "tool_use": "{{ tools }}"}
    assert first(ChatFormat(named)) == first(chatml)
    named.chat_template = {"rag": CHATML, "tool_use": CHATML}
    with pytest.raises(SparringError):
        ChatFormat(named)


def test_a_template_that_refuses_a_conversation_is_an_error_for_users():
    with pytest.raises(SparringError, match="roles must alternate"):
        ChatFormat(byte_tokenizer("{{ raise_exception('roles must alternate') }}"))


def test_a_special_token_that_is_no_text_stands_for_none():
    plain = _Plain(SimpleNamespace(all_special_tokens=["", "<s>"]))
    assert plain("a<s>b") == "ab"


@pytest.fixture(scope="module")
def base() -> ChatFormat:
    """Of a base model: a BOS token, and no template."""
    tokenizer = byte_tokenizer(None)
    tokenizer.add_special_tokens({"bos_token": "<s>"})
    return ChatFormat(tokenizer)


def test_a_prompt_without_template_begins_with_one_bos(base):
    prompt = first(base)
    bos = base._tokenizer.bos_token_id
    assert prompt[0] == bos
    assert later(base, [*prompt, *base.completion("Add.")], 2).count(bos) == 1


def test_the_turn_of_a_base_model_ends_if_it_begins_the_next_user_message(base):
    (stop,) = base.stop_texts()
    written = base._encode(f"Add.\n\n{stop}")
    assert base.text(written) == "Add.\n\n"
    prompt = later(base, [*first(base), *written], 2)
    assert base._tokenizer.decode(prompt).count("### User") == 2
    assert set(base.stop_texts(BEGUN.begins)) > {stop}


def test_a_chat_model_may_write_that_heading(chatml):
    assert chatml.text(chatml._encode("### User\n")) == "### User\n"


def test_the_text_in_a_prompt_is_that_of_the_format(tagged, chatml):
    message = Message(brief="short", full="long")
    for style, text, other in ((tagged, "short", "long"), (chatml, "long", "short")):
        assert style.shown(message) == text
        prompt = style.text(style.say((), message))
        assert text in prompt and other not in prompt
