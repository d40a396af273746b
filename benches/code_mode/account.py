"""The costs of a conversation with tools, in tokens, turns and seconds.

A model that is called through an interface without memory is sent everything again at each of its turns: the definitions
of the tools, the task, and all calls and results so far. The figures follow from that:

- `schemas`: the definitions of the tools, and the instructions of their servers
- `prompt`: the task
- `written`: what the model writes, which is its calls and its answer
- `results`: what the tools answer
- `turns`: how often the model is called, the answer included
- `sent`: the input of all turns together
- `once`: each token one time, as if a cache made everything free that was sent before
- `seconds`: how long the tools took
"""

from dataclasses import asdict, dataclass, field

TOKENIZER = "o200k_base, as in bpe-openai 0.1.4"
"""The tokenizer of the published figures: its vocabulary is in the package, so nothing is downloaded when it counts."""


def token_counter():
    """Counts the tokens of a text."""
    try:
        import bpe_openai
    except ImportError:
        raise SystemExit(
            "the tokenizer is missing\nhint: `uv run benches/code_mode/run.py` brings it, or install bpe-openai==0.1.4"
        ) from None
    encoding = bpe_openai.get_encoding("o200k_base")
    return lambda text: len(encoding.encode(text, disallowed_special=()))


def byte_counter():
    """Counts bytes instead, where no tokenizer is installed."""
    return lambda text: len(text.encode())


@dataclass
class Turn:
    """One response of the model, and what the tools made of it."""

    written: int
    results: int = 0
    seconds: float = 0.0


@dataclass
class Account:
    """The costs of one conversation, turn by turn."""

    schemas: int
    prompt: int
    turns: list[Turn] = field(default_factory=list)

    def inputs(self):
        """The input of each turn."""
        so_far = self.schemas + self.prompt
        for turn in self.turns:
            yield so_far
            so_far += turn.written + turn.results

    def figures(self):
        """All figures."""
        written = sum(turn.written for turn in self.turns)
        results = sum(turn.results for turn in self.turns)
        return {
            "schemas": self.schemas,
            "prompt": self.prompt,
            "written": written,
            "results": results,
            "turns": len(self.turns),
            "sent": sum(self.inputs()),
            "once": self.schemas + self.prompt + written + results,
            "seconds": round(sum(turn.seconds for turn in self.turns), 3),
        }

    def with_schemas(self, schemas):
        """The same conversation with other definitions."""
        return Account(schemas, self.prompt, self.turns)

    def to_json(self):
        """For a file of results."""
        return asdict(self)
