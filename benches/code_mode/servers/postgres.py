"""A database for the tasks of MCPMark: `postgres.py NAME ANNOUNCEMENT`, with libpq's variables in the environment.

The suite has its agents use postgres-mcp, which needs Python 3.12. These are three of its tools, by the same names.
A task names the database that the following calls work on.
"""

import json
import sys

import psycopg2
from toolbox import Tool, serve

TEXT = {"type": "string"}


class Database:
    """The database of the present task."""

    name = "postgres"

    def run(self, sql, *arguments):
        """The rows of a statement as JSON. A script is one transaction, unless it says otherwise."""
        connection = psycopg2.connect(dbname=self.name)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, arguments or None)
                rows = cursor.fetchall() if cursor.description else []
                names = [column.name for column in cursor.description or []]
            connection.commit()
        finally:
            connection.close()
        return json.dumps(
            [dict(zip(names, row, strict=True)) for row in rows], default=str
        )

    def execute_sql(self, sql):
        return self.run(sql)

    def list_objects(self, schema_name):
        return self.run(
            "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = %s ORDER BY 1",
            schema_name,
        )

    def get_object_details(self, schema_name, object_name):
        return self.run(
            "SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            schema_name,
            object_name,
        )

    def tools(self):
        return {
            "execute_sql": Tool(
                "Executes SQL, one statement or a script, and returns the rows of the last statement.",
                schema(sql="The SQL to run."),
                self.execute_sql,
            ),
            "list_objects": Tool(
                "Lists the tables and views of a schema.",
                schema(schema_name="The schema's name."),
                self.list_objects,
            ),
            "get_object_details": Tool(
                "Shows the columns of a table or view.",
                schema(
                    schema_name="The schema's name.", object_name="The table's name."
                ),
                self.get_object_details,
            ),
        }

    def task(self, request):
        self.name = request["database"]
        return {}


def schema(**parameters):
    properties = {
        name: {**TEXT, "description": description}
        for name, description in parameters.items()
    }
    return {"type": "object", "properties": properties, "required": list(parameters)}


if __name__ == "__main__":
    database = Database()
    serve(sys.argv[1], database.tools, database.task, sys.argv[2])
