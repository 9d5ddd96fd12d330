"""Totals a day's invoices by customer, with tax.

Payload: `taxRate` (a decimal, as text), `currency`, and `invoices`: a list of `id`, `customer`,
`issuedOn` and `lines`, each of `quantity` and `unitPrice` (a decimal, as text). `dateRange` may be
`yesterday` or a date; invoices of other days are ignored.

`yesterday` is relative to the scheduled time of the run, not to the clock: a retry after midnight,
or a redrive next week, reports on the same day.
"""

import json
import os
import sys
from collections import defaultdict
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

CENT = Decimal("0.01")


def day_of(date_range: str) -> date:
    """The day that the report is on, in UTC."""
    if date_range == "yesterday":
        scheduled_at = datetime.fromisoformat(os.environ["NEXTFIRE_SCHEDULED_AT"])
        return scheduled_at.date() - timedelta(days=1)
    return date.fromisoformat(date_range)


def net_of(invoice: dict[str, Any]) -> Decimal:
    """An invoice's total before tax, to the cent."""
    total = sum(
        (Decimal(line["unitPrice"]) * Decimal(line["quantity"]) for line in invoice["lines"]),
        Decimal(0),
    )
    return total.quantize(CENT, ROUND_HALF_UP)


def main(payload: dict[str, Any]) -> None:
    """Print the report, and its sum as JSON in the last line."""
    day = day_of(payload["dateRange"])
    currency, tax_rate = payload["currency"], Decimal(payload["taxRate"])
    net: dict[str, Decimal] = defaultdict(Decimal)
    count = 0
    for invoice in payload["invoices"]:
        if invoice["issuedOn"] == day.isoformat():
            net[invoice["customer"]] += net_of(invoice)
            count += 1

    print(f"Invoices of {day} ({payload['tenantId']}): {count}")
    for customer, amount in sorted(net.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {customer:<20} {amount:>12,.2f} {currency}")
    total = sum(net.values(), Decimal(0))
    tax = (total * tax_rate).quantize(CENT, ROUND_HALF_UP)
    summary = {"day": day.isoformat(), "invoices": count, "net": str(total), "tax": str(tax)}
    print(json.dumps(summary))


try:
    main(json.load(sys.stdin))
except KeyError as missing:
    sys.exit(f"The payload, or the environment, has no {missing}.")
