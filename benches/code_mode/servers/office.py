"""The servers of an office, each of them a real MCP server on stdio: `office.py SERVER EFFECTS`.

EFFECTS is a file to which each change is added as a line of JSON, so that a verifier can see the end state whichever
process served the calls.
"""

import base64
import json
import sys
from pathlib import Path
from typing import Annotated

from mcp.server.fastmcp import FastMCP
from pydantic import BaseModel, Field

sys.path.insert(0, str(Path(__file__).parent))

import data

EFFECTS = Path(sys.argv[2]) if len(sys.argv) > 2 else None
CustomerId = Annotated[str, Field(description="The customer's id, such as C001.")]


def effect(**change):
    """Notes a change."""
    with EFFECTS.open("a") as file:
        file.write(json.dumps(change) + "\n")


def effects(kind):
    """The changes of a kind so far."""
    lines = EFFECTS.read_text().splitlines() if EFFECTS.exists() else []
    return [change for change in map(json.loads, lines) if change["kind"] == kind]


class Customer(BaseModel):
    id: str
    name: str
    email: str
    region: str
    since: str


class Order(BaseModel):
    id: str
    customer_id: str
    item: str
    amount: float
    state: str


class Sale(BaseModel):
    id: str
    region: str
    item: str
    quantity: int
    amount: float


class SalesPage(BaseModel):
    rows: list[Sale]
    page: int
    pages: int


class Handover(BaseModel):
    depot: str
    delivered: bool
    next_depot: str | None
    next_code: str | None


class Host(BaseModel):
    name: str
    zone: str


class Status(BaseModel):
    host: str
    load: float
    disk_used_percent: int
    memory_used_percent: int
    uptime_hours: int
    kernel: str
    services: dict[str, str]


class Invoice(BaseModel):
    id: str
    customer_id: str
    amount: float
    status: str
    due: str


class Ticket(BaseModel):
    id: str
    customer_id: str
    state: str
    subject: str
    priority: str


class Attachment(BaseModel):
    name: str
    media_type: str
    base64: str


class Stored(BaseModel):
    path: str
    bytes: int
    sha256: str


def orders(server):
    @server.tool()
    def get_order(
        order_id: Annotated[str, Field(description="The order's id, such as O0001.")],
    ) -> Order:
        """Returns an order with its item, amount and state (open, shipped or delivered)."""
        return Order(**data.orders()[order_id])

    @server.tool()
    def list_orders(customer_id: CustomerId) -> list[Order]:
        """Lists all orders of a customer, oldest first."""
        return [
            Order(**order)
            for order in data.orders().values()
            if order["customer_id"] == customer_id
        ]

    @server.tool()
    def cancel_order(order_id: str, reason: str) -> str:
        """Cancels an order that is still open."""
        effect(kind="cancelled", order=order_id, reason=reason)
        return f"cancelled {order_id}"


def crm(server):
    @server.tool()
    def find_customer(
        email: Annotated[str, Field(description="The whole address.")],
    ) -> Customer:
        """Finds the customer who has an email address."""
        for customer in data.customers().values():
            if customer["email"] == email:
                return Customer(**customer)
        raise ValueError(f"no customer has the address {email}")

    @server.tool()
    def list_customers(
        region: Annotated[
            str, Field(description="One of north, south, east and west.")
        ],
    ) -> list[Customer]:
        """Lists the customers of a region."""
        return [
            Customer(**customer)
            for customer in data.customers().values()
            if customer["region"] == region
        ]

    @server.tool()
    def flag_customer(
        customer_id: CustomerId,
        reason: Annotated[str, Field(description="What their account manager reads.")],
    ) -> str:
        """Flags a customer for their account manager."""
        effect(kind="flagged", customer=customer_id, reason=reason)
        return f"flagged {customer_id}"


def sales(server):
    @server.tool()
    def list_sales(
        page: Annotated[int, Field(description="The page, from 1 on.", ge=1)] = 1,
    ) -> SalesPage:
        """Lists the sales of this month, a hundred on each page."""
        pages = data.sales()
        return SalesPage(rows=pages[page - 1], page=page, pages=len(pages))

    @server.tool()
    def save_report(title: str, text: str) -> str:
        """Saves a report, which the team can read."""
        effect(kind="report", title=title, text=text)
        return f"saved {title}"


def parcels(server):
    @server.tool()
    def get_handover(
        depot: Annotated[str, Field(description="The depot that had the parcel.")],
        code: Annotated[str, Field(description="The code under which it had it.")],
    ) -> Handover:
        """Returns where a depot has sent a parcel: the next depot, and the code under which it is known there."""
        steps = data.handovers()
        place = steps.index((depot, code))
        last = place == len(steps) - 1
        following = (None, None) if last else steps[place + 1]
        return Handover(
            depot=depot,
            delivered=last,
            next_depot=following[0],
            next_code=following[1],
        )

    @server.tool()
    def open_claim(depot: str, reason: str) -> str:
        """Opens a claim for a lost parcel at the depot that had it last."""
        effect(kind="claim", depot=depot, reason=reason)
        return f"claimed at {depot}"


def fleet(server):
    @server.tool()
    def list_hosts() -> list[Host]:
        """Lists all hosts."""
        return [Host(name=name, zone="ab"[int(name[-1]) % 2]) for name in data.hosts()]

    @server.tool()
    def get_status(
        host: Annotated[str, Field(description="The host's name.")],
    ) -> Status:
        """Returns the state of a host: load, memory, disk, and each of its services (running or failed)."""
        return Status(**data.hosts()[host])

    @server.tool()
    def restart_service(
        host: Annotated[str, Field(description="The host's name.")],
        service: Annotated[str, Field(description="The service's name.")],
    ) -> str:
        """Restarts a service of a host."""
        effect(kind="restarted", host=host, service=service)
        return f"restarted {service} on {host}"


def billing(server):
    @server.tool()
    def list_invoices(
        status: Annotated[
            str, Field(description="One of paid, open and overdue.")
        ] = "open",
    ) -> list[Invoice]:
        """Lists the invoices with a status."""
        return [
            Invoice(**invoice)
            for invoice in data.invoices().values()
            if invoice["status"] == status
        ]

    @server.tool()
    def send_reminder(invoice_id: str) -> str:
        """Sends a reminder for an overdue invoice."""
        effect(kind="reminded", invoice=invoice_id)
        return f"reminded for {invoice_id}"


def support(server):
    @server.tool()
    def list_tickets(
        state: Annotated[str, Field(description="One of open and closed.")] = "open",
    ) -> list[Ticket]:
        """Lists the tickets that are in a state."""
        return [
            Ticket(**ticket)
            for ticket in data.tickets().values()
            if ticket["state"] == state
        ]

    @server.tool()
    def add_note(ticket_id: str, text: str) -> str:
        """Adds a note to a ticket."""
        effect(kind="noted", ticket=ticket_id, text=text)
        return f"noted on {ticket_id}"


def archive(server):
    @server.tool()
    def list_records() -> dict[str, str]:
        """Lists the records that are to be archived: their texts by their ids."""
        return data.records()

    @server.tool()
    def archive_record(record_id: str, text: str) -> str:
        """Archives a record. When the archive is busy, it refuses, and the same call has to be made again."""
        refused = [
            change for change in effects("refused") if change["record"] == record_id
        ]
        if len(refused) < data.refusals(record_id):
            effect(kind="refused", record=record_id)
            raise ValueError(f"the archive is busy, send {record_id} again")
        effect(kind="archived", record=record_id, text=text)
        return f"archived {record_id}"


def mail(server):
    @server.tool()
    def get_attachment(
        message_id: Annotated[
            str, Field(description="The message's id, such as M001.")
        ],
    ) -> Attachment:
        """Returns the attachment of a message, in base64."""
        return Attachment(
            name=f"{message_id}.pdf",
            media_type="application/pdf",
            base64=data.attachment_as_text(),
        )

    @server.tool()
    def send_mail(to: str, subject: str, text: str) -> str:
        """Sends a mail."""
        effect(kind="mailed", to=to, subject=subject, text=text)
        return f"sent to {to}"


def files(server):
    @server.tool()
    def store_file(
        path: Annotated[str, Field(description="Where the file is kept.")],
        content: Annotated[str, Field(description="The content, in base64.")],
    ) -> Stored:
        """Stores a file."""
        decoded = base64.b64decode(content, validate=True)
        stored = {
            "path": path,
            "bytes": len(decoded),
            "sha256": data.digest(decoded),
        }
        effect(kind="stored", **stored)
        return Stored(**stored)

    @server.tool()
    def list_files() -> list[Stored]:
        """Lists the stored files."""
        return [
            Stored(**{key: file[key] for key in ("path", "bytes", "sha256")})
            for file in effects("stored")
        ]


SERVERS = {
    server.__name__: server
    for server in (
        archive,
        billing,
        crm,
        files,
        fleet,
        mail,
        orders,
        parcels,
        sales,
        support,
    )
}


def main():
    name = sys.argv[1]
    if name not in SERVERS:
        raise SystemExit(
            f"there is no server `{name}`\nhint: one of {', '.join(SERVERS)}"
        )
    server = FastMCP(name, log_level="WARNING")
    SERVERS[name](server)
    server.run()


if __name__ == "__main__":
    main()
