"""Models that follow a script, in place of the reader's, and a user who answers.

The runner of the documentation replaces the line `model = …` of a program by `model = scripted.LIBRARY()`. The script: a
cell that calls a tool twice, a cell that says how often the first one ran, and the end. A conversation that ends
otherwise makes the program fail.
"""

import atexit
import builtins
import itertools
import json
import os
import sys
from pathlib import Path

FIRST = """
from mcptools.time import convert_time

runs = globals().get("runs", 0) + 1
for city in ("Asia/Tokyo", "America/Lima"):
    try:
        answer = convert_time.run(convert_time.Params(source_timezone="UTC", time="12:00", target_timezone=city))
        print(city, answer)
    except Exception as error:
        print(city, type(error).__name__)
"""
SECOND = 'print("the cell before ran", runs, "time")'
CELLS = [FIRST, SECOND]
END = "It is 21:00 in Tokyo. You did not allow the call for Lima."
ANSWERS = ["y", "n"]

results = []
"""The text that the model has got from its tool, or as the output of its code."""

questions = []
"""The questions to the user."""

checked = []
"""True if the conversation came to its end."""


@atexit.register
def fail_unless_checked():
    """Makes the program fail whose conversation did not come to its end."""
    if not checked:
        print(
            "the scripted conversation did not come to its end",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)


def answer(prompt):
    """Answers on a terminal that shows what was typed."""
    questions.append(prompt)
    reply = ANSWERS[len(questions) - 1]
    print(f"{prompt}{reply}")
    return reply


builtins.input = answer


def check():
    """Fails if the script did not come to its end as it should have."""
    assert len(questions) == len(ANSWERS), f"the user was asked: {questions}"
    first, second = results
    assert "Asia/Tokyo" in first and "21:00" in first, first
    assert "America/Lima ApprovalRejectedError" in first, first
    assert "the cell before ran 1 time" in second, second


def take(texts):
    """Keeps the results in the conversation so far; gives the next cell, or nothing at the end."""
    results[:] = texts
    if len(results) < len(CELLS):
        return CELLS[len(results)]
    check()
    checked.append(True)
    return None


def langchain():
    """A chat model of LangChain."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self):
            return "scripted"

        def bind_tools(self, tools, **_):
            assert [tool.name for tool in tools] == ["execute_ipython_cell"]
            return self

        def _generate(self, messages, stop=None, run_manager=None, **_):
            texts = [
                message.content
                for message in messages
                if isinstance(message, ToolMessage)
            ]
            message = AIMessage(END)
            if code := take(texts):
                call = {
                    "name": "execute_ipython_cell",
                    "args": {"code": code},
                    "id": f"call_{len(texts)}",
                }
                message = AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=message)])

    return Scripted()


def pydantic_ai():
    """Pydantic AI's model for tests, with a function."""
    from pydantic_ai.messages import (
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
    )
    from pydantic_ai.models.function import FunctionModel

    def respond(messages, info):
        assert [tool.name for tool in info.function_tools] == ["execute_ipython_cell"]
        parts = itertools.chain.from_iterable(message.parts for message in messages)
        texts = [part.content for part in parts if isinstance(part, ToolReturnPart)]
        part = TextPart(END)
        if code := take(texts):
            part = ToolCallPart(
                "execute_ipython_cell", {"code": code}, f"call_{len(texts)}"
            )
        return ModelResponse([part])

    return FunctionModel(respond)


def agents():
    """A model of the OpenAI Agents SDK."""
    from agents import Model, ModelResponse, Usage, set_tracing_disabled
    from agents.testing import assistant_message, function_call

    set_tracing_disabled(True)

    class Scripted(Model):
        async def get_response(
            self, system_instructions, input, model_settings, tools, *args, **kwargs
        ):
            assert [tool.name for tool in tools] == ["execute_ipython_cell"]
            items = [] if isinstance(input, str) else input
            texts = [
                item["output"]
                for item in items
                if item.get("type") == "function_call_output"
            ]
            item = assistant_message(END)
            if code := take(texts):
                arguments = json.dumps({"input": code})
                item = function_call(
                    "execute_ipython_cell", arguments, call_id=f"call_{len(texts)}"
                )
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *args, **kwargs):
            raise NotImplementedError

    return Scripted()


def smolagents():
    """A model of smolagents, for agents of both kinds."""
    from smolagents import ChatMessage, MessageRole, Model
    from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

    class Scripted(Model):
        def generate(
            self,
            messages,
            stop_sequences=None,
            response_format=None,
            tools_to_call_from=None,
            **_,
        ):
            texts = [
                "".join(part["text"] for part in message.content)
                for message in messages
                if message.role == MessageRole.TOOL_RESPONSE
            ]
            code = take(texts)
            if tools_to_call_from is None:
                code = code or f"final_answer({END!r})"
                return ChatMessage(
                    MessageRole.ASSISTANT, f"Thought: on.\n<code>\n{code}\n</code>"
                )
            name, arguments = "execute_ipython_cell", {"code": code}
            if not code:
                name, arguments = "final_answer", {"answer": END}
            assert name in [tool.name for tool in tools_to_call_from]
            function = ChatMessageToolCallFunction(arguments, name)
            call = ChatMessageToolCall(function, f"call_{len(texts)}", "function")
            return ChatMessage(MessageRole.ASSISTANT, "", [call])

    return Scripted()


def claude_agent_sdk():
    """Claude Code's model, behind an API on loopback; programs of the SDK name none."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "packaging"))
    import model

    class Scripted(model.ScriptedModel):
        def next(self, request):
            self.requests.append(request)
            texts = list(model.tool_results(request))
            try:
                code = take(texts)
            except AssertionError as error:
                # Without an answer Claude Code would ask again and again.
                print(f"not as scripted: {error}", file=sys.stderr)
                return [{"type": "text", "text": "The script does not go on."}]
            if code:
                call = {
                    "type": "tool_use",
                    "id": f"toolu_{len(texts)}",
                    "name": "mcp__ipybox__execute_ipython_cell",
                    "input": {"code": code},
                }
                return [call]
            return [{"type": "text", "text": END}]

    os.environ |= {
        "ANTHROPIC_BASE_URL": Scripted([]).__enter__().url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
