# %% A table is made and filled in a loop.
import ast

from mcptools.sqlite import (
    create_table,
    describe_table,
    list_tables,
    read_query,
    write_query,
)

create_table.run(
    create_table.Params(
        query="CREATE TABLE stock (item TEXT PRIMARY KEY, count INTEGER)"
    )
)
assert "stock" in list_tables.run(list_tables.Params())

for number, item in enumerate(["apple", "pear", "plum", "quince"]):
    written = write_query.run(
        write_query.Params(query=f"INSERT INTO stock VALUES ('{item}', {number * 5})")
    )
    assert "affected_rows" in written and "1" in written, written

# %% What one tool read decides what the next one writes.
low = ast.literal_eval(
    read_query.run(
        read_query.Params(query="SELECT item FROM stock WHERE count < 10 ORDER BY item")
    )
)
assert [row["item"] for row in low] == ["apple", "pear"], low
for row in low:
    write_query.run(
        write_query.Params(
            query=f"UPDATE stock SET count = count + 100 WHERE item = '{row['item']}'"
        )
    )

total = ast.literal_eval(
    read_query.run(read_query.Params(query="SELECT sum(count) AS total FROM stock"))
)
assert total == [{"total": 230}], total
columns = ast.literal_eval(
    describe_table.run(describe_table.Params(table_name="stock"))
)
assert [column["name"] for column in columns] == ["item", "count"], columns

# %% This server answers a failed query with text, not with an error.
refused = read_query.run(read_query.Params(query="DROP TABLE stock"))
assert "Only SELECT queries are allowed" in refused, refused

# %%
print("sqlite: done")
