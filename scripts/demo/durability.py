"""First chapter: the broker is killed while records come in, and a consumer while it works."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from scripts.demo.broker import BrokerProcess
from scripts.demo.member import SESSION_SECONDS
from scripts.demo.sharing import Shared, share
from scripts.demo.stream import PARTITIONS, Published, ReadBack, create_topic, publish, read_back

RECORDS = 200_000
RECORD_BYTES = 200
KILL_AT = RECORDS // 2
TOPIC = "demo"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was promised and what was found."""

    published: Published
    read: ReadBack
    shared: Shared
    lost: int
    misplaced: int

    @property
    def kept(self) -> bool:
        """Every record was acknowledged and stands once, where its acknowledgement said."""
        everything = self.published.acknowledged == RECORDS == len(self.read.positions)
        return everything and not (self.lost or self.misplaced or self.read.duplicates)

    @property
    def taken_over(self) -> bool:
        """The group saw every record, though one of its two members was killed."""
        both = len(self.shared.by_member) == 2
        return both and self.shared.count == RECORDS and not self.shared.missing(self.read.ends)


def tell(console: Console, broker: BrokerProcess) -> Outcome:
    """Run the chapter; raises if a broker does not start or records stay unsent."""
    create_topic(broker.address, TOPIC)

    def strike() -> None:
        broker.kill()
        console.print("[bold red]SIGKILL[/] of the broker with the stream under way")
        broker.start()
        console.print(f"broker is back, ready after {broker.start_seconds:.2f} s")

    published = publish(
        broker.address, TOPIC, RECORDS, RECORD_BYTES, at=KILL_AT, strike=strike, console=console
    )
    read = read_back(broker.address, TOPIC, RECORDS, console=console)
    shared = share(broker.address, TOPIC, read.ends, console=console)
    lost = sum(1 for number in published.positions if number not in read.positions)
    misplaced = sum(
        1
        for number, place in published.positions.items()
        if number in read.positions and read.positions[number] != place
    )
    return Outcome(published, read, shared, lost, misplaced)


def show(console: Console, outcome: Outcome) -> None:
    """The table at the end."""
    published, read, shared = outcome.published, outcome.read, outcome.shared
    table = Table(
        title="acks=all, log.flush.policy=fsync; one SIGKILL of the broker, one of a consumer",
        title_justify="left",
    )
    table.add_column("what")
    table.add_column("value", justify="right")
    megabytes = RECORD_BYTES / 1e6
    rate_out, rate_in = RECORDS / published.seconds, len(read.positions) / read.seconds
    rows = [
        ("records published", f"{RECORDS:,} in {PARTITIONS} partitions"),
        ("acknowledged", f"{published.acknowledged:,}"),
        ("  of these before the kill", f"{published.acknowledged_before:,}"),
        ("read back", f"{len(read.positions):,}"),
        ("acknowledged but lost", f"{outcome.lost:,}"),
        ("at another offset than acknowledged", f"{outcome.misplaced:,}"),
        ("duplicates", f"{read.duplicates:,}"),
        ("from kill to next acknowledgement", f"{published.outage_seconds:.2f} s"),
        ("publish rate, outage included", f"{rate_out:,.0f}/s, {rate_out * megabytes:.1f} MB/s"),
        ("read rate", f"{rate_in:,.0f}/s, {rate_in * megabytes:.1f} MB/s"),
        ("group of two: done by ann, until she was killed", f"{shared.by_member.get('ann', 0):,}"),
        ("group of two: done by bob", f"{shared.by_member.get('bob', 0):,}"),
        (
            f"  takes over after (session of {SESSION_SECONDS} s)",
            f"{shared.takeover_seconds:.2f} s",
        ),
        ("  records nobody did", f"{shared.missing(read.ends):,}"),
        ("  records done again (at least once)", f"{shared.repeated:,}"),
    ]
    for what, value in rows:
        table.add_row(what, value)
    console.print(table)
