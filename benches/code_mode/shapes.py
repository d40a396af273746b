"""Eight shapes of work in an office with ten small servers, each with a reference solution in every arm.

A shape's `direct` is what a model that makes no mistake would call: calls that need nothing of each other are one turn,
and everything that it computes from results costs nothing. `code` is a cell that does the same. Both end with the same answer.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from arms import Misfit, call
from servers import data

SERVERS = Path(__file__).parent / "servers"


@dataclass(frozen=True)
class Shape:
    """A task, its solutions, and what must be true at the end."""

    name: str
    task: str
    needs: tuple[str, ...]
    """The servers that it needs."""
    search: tuple[str, ...]
    """The searches of a model that sees no definitions, to learn how tools are called; one for each tool."""
    tools: tuple[str, ...]
    """The tools that the searches have to find."""
    direct: object
    code: str
    expected: object
    """The answer."""
    effects: object
    """The changes, in any order, and without refusals."""
    hybrid: str
    """The better way for an agent that has both: `direct` or `code`."""


def look_up(shape):
    """The cell by which a model learns how the tools are called, and what they return."""
    lines = ["from mcptools import search"]
    for query in shape.search:
        lines.append(f"print(search({query!r}, limit=1))")
    return "\n".join(lines)


def nothing():
    return []


# One lookup.


async def look_up_order(talk):
    order = (await talk.one(call("orders", "get_order", order_id="O0042"))).value
    return f"{order['item']}, {order['state']}"


ONE_LOOKUP = Shape(
    name="one lookup",
    task="Which item has order O0042, and what is its state? Answer as `item, state`.",
    needs=("orders",),
    search=("get an order",),
    tools=("get_order",),
    direct=look_up_order,
    code=(
        "from mcptools import orders\n"
        "order = orders.get_order.run(order_id='O0042')\n"
        "print(f'{order.item}, {order.state}')"
    ),
    expected=lambda: "{item}, {state}".format(**data.orders()["O0042"]),
    effects=nothing,
    hybrid="direct",
)

# Two steps.

EMAIL = "contact@customer17.example.com"


async def open_orders(talk):
    customer = (await talk.one(call("crm", "find_customer", email=EMAIL))).value
    orders = await talk.one(call("orders", "list_orders", customer_id=customer["id"]))
    return " ".join(order["id"] for order in orders.value if order["state"] == "open")


TWO_STEPS = Shape(
    name="two steps",
    task=f"Which orders of the customer with the address {EMAIL} are still open? Answer with their ids.",
    needs=("crm", "orders"),
    search=("find customer by email address", "list orders of a customer"),
    tools=("find_customer", "list_orders"),
    direct=open_orders,
    code=(
        "from mcptools import crm, orders\n"
        f"customer = crm.find_customer.run(email={EMAIL!r})\n"
        "found = orders.list_orders.run(customer_id=customer.id).result\n"
        "print(*[order.id for order in found if order.state == 'open'])"
    ),
    expected=lambda: " ".join(
        order["id"]
        for order in data.orders().values()
        if order["customer_id"] == "C017" and order["state"] == "open"
    ),
    effects=nothing,
    hybrid="direct",
)

# Bulk reduction.


def by_region(rows):
    sums = defaultdict(float)
    for row in rows:
        sums[row["region"]] += row["amount"] * row["quantity"]
    return ", ".join(f"{region} {total:.2f}" for region, total in sorted(sums.items()))


def sales_by_region():
    return by_region(row for page in data.sales() for row in page)


async def reduce_sales(talk):
    first = (await talk.one(call("sales", "list_sales"))).value
    pages = range(2, first["pages"] + 1)
    rest = await talk.turn(*(call("sales", "list_sales", page=page) for page in pages))
    rows = first["rows"] + [row for page in rest for row in page.value["rows"]]
    text = by_region(rows)
    await talk.one(call("sales", "save_report", title="Sales by region", text=text))
    return text


BULK_REDUCTION = Shape(
    name="bulk reduction",
    task="Sum this month's sales (amount times quantity) by region, save it as the report `Sales by region`, and answer "
    "with the same text: `region total, …` with two decimals, regions in alphabetical order.",
    needs=("sales",),
    search=("list sales", "save a report"),
    tools=("list_sales", "save_report"),
    direct=reduce_sales,
    code=(
        "from collections import defaultdict\n"
        "from mcptools import sales\n"
        "sums, page, pages = defaultdict(float), 1, 1\n"
        "while page <= pages:\n"
        "    found = sales.list_sales.run(page=page)\n"
        "    for row in found.rows:\n"
        "        sums[row.region] += row.amount * row.quantity\n"
        "    page, pages = page + 1, found.pages\n"
        "text = ', '.join(f'{region} {total:.2f}' for region, total in sorted(sums.items()))\n"
        "sales.save_report.run(title='Sales by region', text=text)\n"
        "print(text)"
    ),
    expected=sales_by_region,
    effects=lambda: [
        {"kind": "report", "title": "Sales by region", "text": sales_by_region()}
    ],
    hybrid="code",
)

# A long chain.

FIRST_DEPOT, FIRST_CODE = data.handovers()[0]


async def follow_parcel(talk):
    depot, code = FIRST_DEPOT, FIRST_CODE
    while True:
        step = await talk.one(call("parcels", "get_handover", depot=depot, code=code))
        if step.value["delivered"]:
            return depot
        depot, code = step.value["next_depot"], step.value["next_code"]


LONG_CHAIN = Shape(
    name="long chain",
    task=f"Depot {FIRST_DEPOT} had a parcel under the code {FIRST_CODE}. Follow it to the depot that delivered it, and "
    "answer with that depot.",
    needs=("parcels",),
    search=("where a depot has sent a parcel",),
    tools=("get_handover",),
    direct=follow_parcel,
    code=(
        "from mcptools import parcels\n"
        f"depot, code = {FIRST_DEPOT!r}, {FIRST_CODE!r}\n"
        "while not (step := parcels.get_handover.run(depot=depot, code=code)).delivered:\n"
        "    depot, code = step.next_depot, step.next_code\n"
        "print(depot)"
    ),
    expected=lambda: data.handovers()[-1][0],
    effects=nothing,
    hybrid="code",
)

# Fan-out.


async def restart_failed(talk):
    hosts = (await talk.one(call("fleet", "list_hosts"))).value
    states = await talk.turn(
        *(call("fleet", "get_status", host=host["name"]) for host in hosts)
    )
    failed = sorted(
        (state.value["host"], service)
        for state in states
        for service, what in state.value["services"].items()
        if what == "failed"
    )
    await talk.turn(
        *(
            call("fleet", "restart_service", host=host, service=service)
            for host, service in failed
        )
    )
    return ", ".join(f"{host} {service}" for host, service in failed)


FAN_OUT = Shape(
    name="fan-out",
    task="Restart every service that has failed, on all hosts. Answer with `host service, …`, sorted.",
    needs=("fleet",),
    search=("list hosts", "status of a host", "restart a service of a host"),
    tools=("list_hosts", "get_status", "restart_service"),
    direct=restart_failed,
    code=(
        "import asyncio\n"
        "from mcptools import fleet\n"
        "hosts = fleet.list_hosts.run().result\n"
        "states = await asyncio.gather(*(fleet.get_status.run_async(host=host.name) for host in hosts))\n"
        "failed = sorted((state.host, service) for state in states for service, what in dict(state.services).items()"
        " if what == 'failed')\n"
        "for host, service in failed:\n"
        "    fleet.restart_service.run(host=host, service=service)\n"
        "print(', '.join(f'{host} {service}' for host, service in failed))"
    ),
    expected=lambda: ", ".join(
        f"{host} {service}" for host, service in data.failed_services()
    ),
    effects=lambda: [
        {"kind": "restarted", "host": host, "service": service}
        for host, service in data.failed_services()
    ],
    hybrid="code",
)

# A join of three servers.

LIMIT = 1_000
REASON = "overdue and waiting"


def joined(customers, invoices, tickets):
    """The customers who have an overdue invoice above the limit and an urgent ticket."""
    ids = {customer["id"] for customer in customers}
    owing = {
        invoice["customer_id"] for invoice in invoices if invoice["amount"] > LIMIT
    }
    waiting = {
        ticket["customer_id"] for ticket in tickets if ticket["priority"] == "high"
    }
    return sorted(ids & owing & waiting)


def to_flag():
    return joined(
        [
            customer
            for customer in data.customers().values()
            if customer["region"] == "east"
        ],
        [
            invoice
            for invoice in data.invoices().values()
            if invoice["status"] == "overdue"
        ],
        [ticket for ticket in data.tickets().values() if ticket["state"] == "open"],
    )


async def flag_joined(talk):
    found = await talk.turn(
        call("crm", "list_customers", region="east"),
        call("billing", "list_invoices", status="overdue"),
        call("support", "list_tickets", state="open"),
    )
    flagged = joined(*(answer.value for answer in found))
    await talk.turn(
        *(
            call("crm", "flag_customer", customer_id=customer, reason=REASON)
            for customer in flagged
        )
    )
    return " ".join(flagged)


FILTER_JOIN = Shape(
    name="filter-join",
    task=f"Flag each customer in the east who has both an overdue invoice above {LIMIT} and an open ticket of high "
    f"priority, with the reason `{REASON}`. Answer with their ids, sorted.",
    needs=("billing", "crm", "support"),
    search=(
        "list customers of a region",
        "list invoices",
        "list tickets",
        "flag a customer",
    ),
    tools=("list_customers", "list_invoices", "list_tickets", "flag_customer"),
    direct=flag_joined,
    code=(
        "from mcptools import billing, crm, support\n"
        "east = {customer.id for customer in crm.list_customers.run(region='east').result}\n"
        "overdue = billing.list_invoices.run(status='overdue').result\n"
        f"owing = {{invoice.customer_id for invoice in overdue if invoice.amount > {LIMIT}}}\n"
        "tickets = support.list_tickets.run(state='open').result\n"
        "waiting = {ticket.customer_id for ticket in tickets if ticket.priority == 'high'}\n"
        "flagged = sorted(east & owing & waiting)\n"
        "for customer in flagged:\n"
        f"    crm.flag_customer.run(customer_id=customer, reason={REASON!r})\n"
        "print(*flagged)"
    ),
    expected=lambda: " ".join(to_flag()),
    effects=lambda: [
        {"kind": "flagged", "customer": customer, "reason": REASON}
        for customer in to_flag()
    ],
    hybrid="code",
)

# Calls that fail and have to be made again.


async def archive_all(talk):
    records = (await talk.one(call("archive", "list_records"))).value
    left, tries = list(records), 0
    while left:
        calls = [
            call("archive", "archive_record", record_id=name, text=records[name])
            for name in left
        ]
        answers = await talk.turn(*calls)
        tries += len(calls)
        if tries > 10 * len(records):
            raise Misfit("the archive never takes everything")
        left = [
            name
            for name, answer in zip(left, answers, strict=True)
            if answer.failed and "again" in answer.text
        ]
    return f"{len(records)} records, {tries} calls"


RETRIES = Shape(
    name="retry on errors",
    task="Archive all records. When the archive is busy, send again. Answer with `N records, M calls`: how many records "
    "there are, and how many calls it took.",
    needs=("archive",),
    search=("list records", "archive a record"),
    tools=("list_records", "archive_record"),
    direct=archive_all,
    code=(
        "from mcptools import archive\n"
        "from ipybox_runtime import ToolRunnerError\n"
        "records, calls = archive.list_records.run().model_dump(), 0\n"
        "for name, text in records.items():\n"
        "    while True:\n"
        "        calls += 1\n"
        "        try:\n"
        "            archive.archive_record.run(record_id=name, text=text)\n"
        "            break\n"
        "        except ToolRunnerError as error:\n"
        "            if 'again' not in str(error):\n"
        "                raise\n"
        "print(f'{len(records)} records, {calls} calls')"
    ),
    expected=lambda: (
        f"{data.RECORDS} records, {data.RECORDS + sum(map(data.refusals, data.records()))} calls"
    ),
    effects=lambda: [
        {"kind": "archived", "record": name, "text": text}
        for name, text in data.records().items()
    ],
    hybrid="code",
)

# A large binary.


async def copy_attachment(talk):
    found = await talk.one(call("mail", "get_attachment", message_id="M001"))
    path = f"inbox/{found.value['name']}"
    stored = await talk.one(
        call("files", "store_file", path=path, content=found.value["base64"])
    )
    return stored.value["sha256"]


LARGE_BINARY = Shape(
    name="large binary",
    task="Store the attachment of message M001 as a file below `inbox/`, under its own name. Answer with its SHA-256.",
    needs=("files", "mail"),
    search=("get the attachment of a message", "store a file"),
    tools=("get_attachment", "store_file"),
    direct=copy_attachment,
    code=(
        "from mcptools import files, mail\n"
        "found = mail.get_attachment.run(message_id='M001')\n"
        "stored = files.store_file.run(path=f'inbox/{found.name}', content=found.base64)\n"
        "print(stored.sha256)"
    ),
    expected=lambda: data.digest(data.attachment()),
    effects=lambda: [
        {
            "kind": "stored",
            "path": "inbox/M001.pdf",
            "bytes": data.ATTACHMENT,
            "sha256": data.digest(data.attachment()),
        }
    ],
    hybrid="code",
)

SHAPES = (
    ONE_LOOKUP,
    TWO_STEPS,
    BULK_REDUCTION,
    LONG_CHAIN,
    FAN_OUT,
    FILTER_JOIN,
    RETRIES,
    LARGE_BINARY,
)
