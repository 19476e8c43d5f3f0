"""What the service holds on its first start: customers, charges, tickets, mailing lists, vendors, items.

Everything is invented and the same each time; addresses are in domains reserved for examples. Amounts are
euros, kept as whole cents. The tickets 5512 to 5518 each show one situation; 5601 to 5660 are ordinary ones
to try on.
"""

from __future__ import annotations

import sqlite3

FIRST_NAMES = [
    "Ada", "Alvaro", "Amira", "Anton", "Beatriz", "Bojan", "Chiara", "Dario", "Elin", "Emeka", "Farah",
    "Femke", "Goran", "Hanna", "Idris", "Ilse", "Jonas", "Katya", "Leila", "Lorenzo", "Maeve",
    "Mateusz", "Nadia", "Nikos", "Oda", "Priya", "Rafael", "Sanne", "Tomas", "Yusra",
]  # fmt: skip
LAST_NAMES = [
    "Abbott", "Almeida", "Bakker", "Bellini", "Berger", "Castellanos", "Claes", "Dimitrov", "Dubois",
    "Eriksen", "Farkas", "Ferreira", "Fischer", "Gallo", "Haddad", "Hansen", "Horvat", "Ivanova",
    "Jansen", "Kaya", "Keller", "Kowalski", "Larsson", "Lindqvist", "Marchetti", "Mendes", "Moreau",
    "Nagy", "Novak", "Okafor", "Petrov", "Quinn", "Rossi", "Santos", "Schmidt", "Sorensen", "Tanaka",
    "Ueda", "Vogel", "Walsh",
]  # fmt: skip
DOMAINS = ("example.com", "example.org", "example.net", "mail.example", "post.example", "home.example")

# id, name, e-mail
CUSTOMERS = [
    ("cus_881", "Marta Lindqvist", "marta.lindqvist@example.com"),
    ("cus_882", "Jonas Keller", "jonas.keller@example.org"),
    ("cus_883", "Priya Nagy", "priya.nagy@example.net"),
    ("cus_884", "Goran Petrov", "goran.petrov@example.com"),
    ("cus_885", "Chiara Bellini", "chiara.bellini@example.org"),
    ("cus_886", "Åse Sørensen-Øygarden", "ase.sorensen@example.net"),
    ("cus_887", "Emeka Okafor", "emeka.okafor@example.com"),
]

# id, customer, cents, status, description
CHARGES = [
    ("ch_4401", "cus_881", 240_00, "paid", "Pendant lamp “Ember”, order 30118"),
    ("ch_4402", "cus_882", 12_50, "paid", "Spare bulb E27, order 30122"),
    ("ch_4403", "cus_883", 180_00, "paid", "Desk lamp “Heron”, order 30127"),
    ("ch_4404", "cus_884", 96_00, "disputed", "Wall light “Pier”, order 30131"),
    ("ch_4405", "cus_885", 64_90, "refunded", "Night light “Moth”, order 30140"),
    ("ch_4406", "cus_886", 1_299_00, "paid", "Chandelier “Aurora”, order 30144"),
    ("ch_4407", "cus_887", 12_400_00, "paid", "Lighting for the Harbour Hall, order 30150"),
]

# charge, cents, reason
REFUNDS = [
    ("ch_4403", 100_00, "Shade arrived cracked"),
    ("ch_4405", 64_90, "Returned within 30 days"),
]

# id, customer, charge, cents asked for, subject, text
TICKETS = [
    (5512, "cus_881", "ch_4401", 240_00, "Charged twice for the same lamp",
     "Hello, order 30118 was charged twice in March. Please send the second payment back."),
    (5513, "cus_882", "ch_4402", 12_50, "The bulb does not fit",
     "The spare bulb has the wrong thread. It is only 12.50, but I would like it back."),
    (5514, "cus_883", "ch_4403", 180_00, "Lamp still flickers after the repair",
     "You refunded 100.00 for the shade. Now the rest fails too; I want the whole price back."),
    (5515, "cus_884", "ch_4404", 96_00, "Never arrived",
     "The wall light never came. I have also asked my bank to take the payment back."),
    (5516, "cus_885", "ch_4405", 64_90, "Where is my refund?",
     "I returned the night light two weeks ago and would like to know where the money is."),
    (5517, "cus_886", "ch_4406", 1_299_00, "Chandelier: broken arm ✨",
     "One arm arrived broken. Jeg vil gjerne ha hele beløpet tilbake, takk."),
    (5518, "cus_887", "ch_4407", 12_400_00, "Event called off",
     "The opening of the hall is cancelled, so we return the whole order unopened."),
]  # fmt: skip

COMPLAINTS = [
    ("Parcel damaged", "The box was wet and the lamp inside does not light."),
    ("Wrong colour", "I ordered brass and got chrome."),
    ("Late delivery", "It came three weeks late; I have bought another one meanwhile."),
    ("Switch broken", "The switch came off the first time I used it."),
    ("Ordered by mistake", "I pressed the button twice. Please undo the second order."),
    ("Return within 30 days", "The lamp is on its way back to you."),
]

LISTS = [("customers", "Customers who asked for news"), ("press", "Press")]

# id, name, days to deliver, per cent of the list price
VENDORS = [
    ("norde", "Norde AB", 5, 100),
    ("kappa", "Kappa Office GmbH", 12, 94),
    ("tallis", "Tallis & Sons Ltd", 2, 109),
]

# id, name, list price in cents
ITEMS = [
    ("standing-desk", "Standing desk 160 × 80", 412_00),
    ("monitor-27", "Monitor 27 inch", 289_90),
    ("label-printer", "Label printer", 154_50),
]


def fill(db: sqlite3.Connection, *, at: str) -> None:
    """Write the first content into empty tables. `at` is the time of the seeding, ISO 8601."""
    db.executemany("INSERT INTO customers VALUES (?, ?, ?)", CUSTOMERS)
    db.executemany("INSERT INTO charges VALUES (?, ?, ?, ?, ?)", CHARGES)
    db.executemany(
        "INSERT INTO refunds (charge, cents, reason, at) VALUES (?, ?, ?, ?)", [(*row, at) for row in REFUNDS]
    )
    db.executemany("INSERT INTO tickets VALUES (?, ?, ?, ?, ?, ?, 'open')", TICKETS)
    _ordinary(db)
    db.executemany("INSERT INTO lists VALUES (?, ?)", LISTS)
    db.executemany("INSERT INTO members VALUES ('customers', ?, ?)", subscribers())
    db.executemany("INSERT INTO members VALUES ('press', ?, ?)", subscribers()[:24])
    db.executemany("INSERT INTO vendors VALUES (?, ?, ?, ?)", VENDORS)
    db.executemany("INSERT INTO items VALUES (?, ?, ?)", ITEMS)


def subscribers() -> list[tuple[str, str]]:
    """The 1,200 of the list "customers": (e-mail, name), 30 first names with 40 last names."""
    people = [(first, last) for first in FIRST_NAMES for last in LAST_NAMES]
    return [
        (f"{first}.{last}@{DOMAINS[index % len(DOMAINS)]}".lower(), f"{first} {last}")
        for index, (first, last) in enumerate(people)
    ]


def _ordinary(db: sqlite3.Connection) -> None:
    """Sixty ordinary tickets, each with a charge of its own, so that tries do not meet."""
    for number in range(1, 61):
        email, name = subscribers()[number * 19]
        subject, text = COMPLAINTS[number % len(COMPLAINTS)]
        customer, charge, cents = f"cus_{900 + number}", f"ch_{4500 + number}", 24_00 + number * 3_10
        db.execute("INSERT INTO customers VALUES (?, ?, ?)", (customer, name, email))
        db.execute(
            "INSERT INTO charges VALUES (?, ?, ?, 'paid', ?)",
            (charge, customer, cents, f"Order {30200 + number}"),
        )
        db.execute(
            "INSERT INTO tickets VALUES (?, ?, ?, ?, ?, ?, 'open')",
            (5600 + number, customer, charge, cents, subject, text),
        )
