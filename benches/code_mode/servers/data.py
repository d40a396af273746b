"""The data of the office: what its servers serve and its verifiers expect. The same in every process."""

import base64
import hashlib
import random
from functools import cache

REGIONS = ("north", "south", "east", "west")
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jade")
FIRMS = ("Mill", "Harbour", "Quarry", "Orchard", "Foundry", "Bakery")
PAGE = 100
"""Rows of a page of sales."""
PAGES = 6
HOPS = 14
"""The number of times that a parcel changes hands."""
HOSTS = 40
RECORDS = 24
ATTACHMENT = 24_000
"""Bytes of the mail's attachment."""


def numbers(topic):
    """A source of numbers that is the same in each run."""
    return random.Random(f"office {topic}")


@cache
def customers():
    """Customers by id."""
    source = numbers("customers")
    found = {}
    for number in range(1, 61):
        name = f"{source.choice(NAMES)}'s {source.choice(FIRMS)} {number}"
        found[f"C{number:03}"] = {
            "id": f"C{number:03}",
            "name": name,
            "email": f"contact@customer{number}.example.com",
            "region": source.choice(REGIONS),
            "since": f"20{source.randint(10, 25)}-0{source.randint(1, 9)}-1{source.randint(0, 9)}",
        }
    return found


@cache
def orders():
    """Orders by id."""
    source = numbers("orders")
    found = {}
    for number in range(1, 181):
        found[f"O{number:04}"] = {
            "id": f"O{number:04}",
            "customer_id": f"C{source.randint(1, 60):03}",
            "item": f"{source.choice(('oak', 'pine', 'ash'))} {source.choice(('table', 'shelf', 'chair'))}",
            "amount": round(source.uniform(20, 900), 2),
            "state": source.choice(("open", "shipped", "delivered")),
        }
    return found


@cache
def sales():
    """The sales of the month, in pages."""
    source = numbers("sales")
    rows = [
        {
            "id": f"S{number:05}",
            "region": source.choice(REGIONS),
            "item": source.choice(("table", "shelf", "chair", "lamp")),
            "quantity": source.randint(1, 9),
            "amount": round(source.uniform(10, 500), 2),
        }
        for number in range(PAGE * PAGES)
    ]
    return [rows[start : start + PAGE] for start in range(0, len(rows), PAGE)]


@cache
def handovers():
    """The way of a parcel: what each depot says, by depot and code."""
    source = numbers("handovers")
    steps = [
        (f"D{source.randint(100, 999)}", f"{source.getrandbits(32):08x}")
        for _ in range(HOPS + 1)
    ]
    return steps


@cache
def hosts():
    """The state of each host."""
    source = numbers("hosts")
    found = {}
    for number in range(1, HOSTS + 1):
        name = f"web-{number:02}"
        found[name] = {
            "host": name,
            "load": round(source.uniform(0.1, 8), 2),
            "disk_used_percent": source.randint(10, 95),
            "memory_used_percent": source.randint(10, 95),
            "uptime_hours": source.randint(1, 9_000),
            "kernel": f"6.{source.randint(1, 12)}.{source.randint(0, 90)}",
            "services": {
                name: source.choice(("running",) * 30 + ("failed",))
                for name in ("nginx", "postgres", "redis", "cron")
            },
        }
    return found


def failed_services():
    """The services that have to be restarted."""
    return sorted(
        (host["host"], service)
        for host in hosts().values()
        for service, state in host["services"].items()
        if state == "failed"
    )


@cache
def invoices():
    """Invoices by id."""
    source = numbers("invoices")
    found = {}
    for number in range(1, 241):
        found[f"I{number:04}"] = {
            "id": f"I{number:04}",
            "customer_id": f"C{source.randint(1, 60):03}",
            "amount": round(source.uniform(50, 4_000), 2),
            "status": source.choice(("paid", "paid", "open", "overdue")),
            "due": f"2026-0{source.randint(1, 9)}-2{source.randint(0, 8)}",
        }
    return found


@cache
def tickets():
    """Tickets by id."""
    source = numbers("tickets")
    found = {}
    for number in range(1, 151):
        found[f"T{number:04}"] = {
            "id": f"T{number:04}",
            "customer_id": f"C{source.randint(1, 60):03}",
            "state": source.choice(("open", "closed", "closed")),
            "subject": f"{source.choice(('late', 'broken', 'wrong'))} {source.choice(('table', 'shelf', 'chair'))}",
            "priority": source.choice(("low", "normal", "high")),
        }
    return found


@cache
def records():
    """The records to archive: texts by id."""
    return {
        f"R{number:02}": f"minutes of meeting {number}"
        for number in range(1, RECORDS + 1)
    }


def refusals(record_id):
    """The number of times that the archive is too busy for a record before it takes it."""
    return (0, 0, 1, 0, 2)[int(record_id[1:]) % 5]


@cache
def attachment():
    """The bytes of the mail's attachment."""
    return numbers("attachment").randbytes(ATTACHMENT)


def attachment_as_text():
    """The attachment as servers send it."""
    return base64.b64encode(attachment()).decode()


def digest(content):
    """The SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()
