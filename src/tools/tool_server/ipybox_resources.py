"""Resources and prompts of an MCP server. Generated packages import it.

Standard library only: it runs in every Python that the kernel or one of its children may start.
"""

import json

from ipybox_results import ResourceLink
from ipybox_templates import expand, names

__all__ = [
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "ResourceTemplate",
    "ServerPrompts",
    "ServerResources",
]


class ResourceTemplate:
    """A template of resources: `read(name=value)` reads the resource that its variables name."""

    def __init__(self, client, template):
        self._client = client
        self.uri_template = template["uriTemplate"]
        self.name = template.get("name")
        self.title = template.get("title")
        self.description = template.get("description")
        self.media_type = template.get("mimeType")

    @property
    def variables(self):
        """The names of the variables."""
        return names(self.uri_template)

    def expand(self, **variables):
        """The URI for these variables; those that are missing are left out."""
        unknown = [name for name in variables if name not in self.variables]
        if unknown:
            known = ", ".join(self.variables) or "none"
            raise TypeError(
                f"{unknown[0]!r} is no variable; the variables are: {known}"
            )
        return expand(self.uri_template, variables)

    def read(self, **variables):
        """Read the resource, as a ToolResult."""
        return self._client.read_resource_sync(self.expand(**variables))

    async def read_async(self, **variables):
        """Read the resource without blocking the event loop."""
        return await self._client.read_resource(self.expand(**variables))

    def __repr__(self):
        return f"<ResourceTemplate {self.name} {self.uri_template}>"


class PromptArgument:
    """An argument of a prompt."""

    def __init__(self, argument):
        self.name = argument["name"]
        self.description = argument.get("description")
        self.required = bool(argument.get("required"))

    def __repr__(self):
        return f"<PromptArgument {self.name}{'' if self.required else ', optional'}>"


class Prompt:
    """A prompt: `get(name=value)` gets its messages."""

    def __init__(self, client, prompt):
        self._client = client
        self.name = prompt["name"]
        self.title = prompt.get("title")
        self.description = prompt.get("description")
        self.arguments = [
            PromptArgument(argument) for argument in prompt.get("arguments") or ()
        ]

    def get(self, **arguments):
        """Get the messages."""
        return ServerPrompts(self._client).get_sync(self.name, arguments)

    async def get_async(self, **arguments):
        """Get the messages without blocking the event loop."""
        return await ServerPrompts(self._client).get(self.name, arguments)

    def __repr__(self):
        names = ", ".join(argument.name for argument in self.arguments)
        return f"<Prompt {self.name}({names})>"


class PromptMessage:
    """A message of a prompt.

    role: `user` or `assistant`; what else the server says, as it says it
    content: a string, or an Image, Audio, Resource or ResourceLink
    """

    def __init__(self, role, content):
        self.role = role
        self.content = content

    def __repr__(self):
        return f"PromptMessage(role={self.role!r}, content={self.content!r})"


class ServerResources:
    """The resources of one server, by the ToolRunner of its package."""

    def __init__(self, client):
        self._client = client

    def list_sync(self):
        return self._links(self._client.list_sync("resources"))

    async def list(self):
        return self._links(await self._client.list("resources"))

    def read_sync(self, uri):
        return self._client.read_resource_sync(uri)

    async def read(self, uri):
        return await self._client.read_resource(uri)

    def templates_sync(self):
        return self._templates(self._client.list_sync("resource_templates"))

    async def templates(self):
        return self._templates(await self._client.list("resource_templates"))

    def read_template_sync(self, template, variables):
        return self.read_sync(expand(template, variables))

    async def read_template(self, template, variables):
        return await self.read(expand(template, variables))

    def _links(self, listed):
        return [ResourceLink(self._client, resource) for resource in listed]

    def _templates(self, listed):
        return [ResourceTemplate(self._client, template) for template in listed]


class ServerPrompts:
    """The prompts of one server, by the ToolRunner of its package."""

    def __init__(self, client):
        self._client = client

    def list_sync(self):
        return self._prompts(self._client.list_sync("prompts"))

    async def list(self):
        return self._prompts(await self._client.list("prompts"))

    def get_sync(self, name, arguments):
        return _messages(self._client.prompt_sync(name, _given(arguments)))

    async def get(self, name, arguments):
        return _messages(await self._client.prompt(name, _given(arguments)))

    def _prompts(self, listed):
        return [Prompt(self._client, prompt) for prompt in listed]


def _given(arguments):
    """The arguments that are not left out. MCP has texts only: other values are sent as JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in arguments.items()
        if value is not None
    }


def _messages(result):
    roles = result.structured["roles"]
    return [PromptMessage(*message) for message in zip(roles, result.blocks)]
