"""The tools of τ-bench's airline or retail: `tau.py DOMAIN ANNOUNCEMENT`, with the package `tau2` on the path.

A task ends with the hash of the database, as the suite computes it. `{"actions": […]}` asks instead for the hash that the
suite's reference solution leads to, on a database of its own, and for what its actions return; `{"descriptions": true}` for those of
the tools.
"""

import importlib
import sys

from toolbox import Tool, serve

DOMAIN = sys.argv[1]

environment = importlib.import_module(f"tau2.domains.{DOMAIN}.environment")


class Task:
    """The database of the present task."""

    def __init__(self):
        first = environment.get_environment()
        self.pristine = first.tools.db.model_dump_json()
        self.model = type(first.tools.db)
        self.environment, self.untouched = first, first.get_db_hash()
        self.is_touched = False
        self.definitions = {tool.name: tool.openai_schema for tool in first.get_tools()}

    def fresh(self):
        """An environment in which nothing has happened."""
        database = self.model.model_validate_json(self.pristine)
        return environment.get_environment(db=database)

    def call(self, name, arguments):
        self.is_touched = True
        made = self.environment.make_tool_call(name, **arguments)
        return self.environment.to_json_str(made)

    def tools(self):
        found = {}
        for name, schema in self.definitions.items():
            function = schema["function"]
            found[name] = Tool(
                function["description"],
                function["parameters"],
                lambda _name=name, **arguments: self.call(_name, arguments),
            )
        return found

    def kinds(self):
        """The kind of each tool: read, write, think, or none of these."""
        tools = self.environment.tools
        return {name: tools.tool_type(name).value for name in tools.tools}

    def end(self, request):
        if "descriptions" in request:
            functions = {
                name: made["function"] for name, made in self.definitions.items()
            }
            return {
                "descriptions": {
                    name: one["description"] for name, one in functions.items()
                }
            }
        if "actions" in request:
            return {"kinds": self.kinds(), **self.reference(request["actions"])}
        if not self.is_touched:
            return {"hash": self.untouched}
        answer = {"hash": self.environment.get_db_hash()}
        self.environment, self.is_touched = self.fresh(), False
        return answer

    def reference(self, actions):
        """The suite goes on where an action of its reference fails, and so does this."""
        gold, results = self.fresh(), []
        for action in actions:
            try:
                made = gold.make_tool_call(action["name"], **action["arguments"])
                results.append(gold.to_json_str(made))
            except Exception as error:  # noqa: BLE001 - the suite does so
                results.append(f"Error: {error}")
        return {"hash": gold.get_db_hash(), "results": results}


if __name__ == "__main__":
    task = Task()
    serve(DOMAIN, task.tools, task.end, sys.argv[2])
