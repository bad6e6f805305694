"""The deliverer's duty: hand over what lies in the outbox, each channel at its own pace.

A delivery is work of its own, with its own attempts; whatever becomes of it, its run stays as it
is (R1.11). It is sent at least once: who dies after sending has it sent again by another (F09).
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from chimes.clock import Clock
from chimes.config import Settings
from chimes.delivery.base import Letter, Progress, Result, Retry, Sender, Sent
from chimes.delivery.digest_message import Gathered, digest_message
from chimes.delivery.message import Message, bare_message, message_of
from chimes.delivery.trial_message import trial_message
from chimes.delivery.verdicts import taken_along, verdict_of
from chimes.delivery.words import USUAL
from chimes.engine.admission import OVERDUE, Admission
from chimes.engine.delivery_recorder import DeliveryRecorder
from chimes.engine.digests import gathered, runs_of, settle_others
from chimes.engine.events import (
    Event,
    Listener,
    RunEnded,
    RunRescued,
    SchedulesFired,
    SenderBroken,
)
from chimes.engine.held_back import HeldBack
from chimes.engine.lifecycle import AtOnce, Rest, Told
from chimes.engine.readers import Readers
from chimes.engine.storetime import StoreTime
from chimes.errors import StoreUnavailable
from chimes.failpoints import hit
from chimes.model.delivery import LONGEST_HOLD, Delivery
from chimes.model.recipient import Channel, Occasion
from chimes.model.run import Run
from chimes.store.port import Store
from chimes.wording import say

#: Seconds that one attempt may take, and how long its sender has before it counts as lost.
LONGEST_SENDING = 150.0
HOLD = LONGEST_HOLD
#: Seconds after that for those that a digest has no room for; both together are less than HOLD.
LONGEST_SETTLING = 15.0
NEVER = timedelta(days=36500)
#: Seconds between two looks while nothing says that there is anything.
LOOK_EVERY = 15.0
#: Seconds until the next look if what is due is for others.
IN_VAIN = 5.0
#: From this length on a text is prepared beside the event loop.
LONG_TEXT = 4000


_NOTHING = Gathered(members=())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reader:
    asked: Readers
    language: str
    zone: str = ""


@dataclass(slots=True)
class _Sending:
    """How far an attempt has come."""

    delivery: Delivery
    letter: Letter | None = None
    along: Gathered = _NOTHING


class Deliverer:
    """A duty, and a listener of the engine: what ends here is looked for at once."""

    name = "deliverer"

    def __init__(
        self,
        store: Store,
        senders: Iterable[Sender],
        *,
        settings: Settings,
        clock: Clock,
        time: StoreTime,
        tell: Listener,
    ) -> None:
        self._store = store
        self._senders = {sender.channel: sender for sender in senders}
        self._settings = settings
        self._clock = clock
        self._time = time
        self._tell = tell
        self._poll = settings.poll_interval
        self.recorder = DeliveryRecorder(store, tell, self._again_later)
        #: Set when there may be something to do.
        self._stirred = asyncio.Event()
        #: Whether a run has ended here that somebody is to be told of.
        self._told = False
        self._look_from = -math.inf
        self._seen: int | None = None
        self._taken: tuple[Delivery, ...] = ()
        self._taken_at = -math.inf
        self._busy: Counter[Channel] = Counter()
        self._held_back = HeldBack(clock)
        self._admission = Admission(store, self._senders, time=time, clock=clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self.idle = asyncio.Event()
        self.idle.set()

    hears = (RunEnded, RunRescued, SchedulesFired)

    def __call__(self, event: Event) -> None:
        match event:
            case RunEnded(run=run) | RunRescued(run=run):
                if run.policy.delivery:
                    self._stir()
            case SchedulesFired(runs=runs):
                if any(run.policy.delivery and run.status.terminal for run in runs):
                    self._stir()
            case _:
                pass

    @property
    def sending(self) -> int:
        """Messages under way, and what became of others as long as it is not written; safe from any
        thread."""
        return len(self._tasks) + self.recorder.waiting

    async def open(self) -> None:
        for sender in self._senders.values():
            await sender.open()

    def stop_sending(self) -> None:
        """What is still being sent is left: its hold ends, and somebody repeats it."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        self.stop_sending()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for sender in self._senders.values():
            await sender.close()

    # --- the duty -----------------------------------------------------------------------------
    async def once(self) -> Rest:
        self._stirred.clear()
        await self._admission.say_what_is_here()
        if self._taken:
            await self._begin()
        open_channels = [c for c, sender in self._senders.items() if self._free(sender) > 0]
        if not open_channels:
            return Told(event=self._stirred)
        changes, told = self._store.changes(), self._told
        if not told and changes == self._seen and self._clock.monotonic() < self._look_from:
            return self._rest()
        self._seen, self._told = changes, False
        if not await self._due():
            return self._rest()
        limit = min(self._free(self._senders[channel]) for channel in open_channels)
        # While one of our own channels is full, what has waited long is most likely its own.
        jammed = len(open_channels) < len(self._senders)
        self._taken_at = self._clock.monotonic()
        self._taken = await self._store.claim_deliveries(
            open_channels, limit=limit, hold=HOLD, overdue=NEVER if jammed else OVERDUE
        )
        if not self._taken:
            self._look_from = self._clock.monotonic() + IN_VAIN
            return self._rest()
        self._look_from = -math.inf
        await self._begin()
        return AtOnce()

    def _free(self, sender: Sender) -> int:
        return sender.places - self._busy[sender.channel]

    async def _due(self) -> bool:
        """Whether anything is; if not, when to look again."""
        due = await self._store.next_delivery()
        now = await self._time.recent()
        if due is not None and due <= now:
            now = await self._time.ask()
            if due <= now:
                return True
        wait = LOOK_EVERY if due is None else min(LOOK_EVERY, (due - now).total_seconds())
        self._look_from = self._clock.monotonic() + wait
        return False

    def _rest(self) -> Rest:
        """Looks at the counter of changes once a poll, which costs the store nothing."""
        left = self._look_from - self._clock.monotonic()
        poll = self._time.rest_of(self._poll)
        return Told(event=self._stirred, seconds=max(0.0, min(poll, left)))

    def _stir(self) -> None:
        self._told = True
        self._stirred.set()

    def _again_later(self, delivery: Delivery) -> None:
        wait = self._time.seconds_until(delivery.available_at)
        self._look_from = min(self._look_from, self._clock.monotonic() + wait)
        self._stirred.set()

    # --- what was taken -----------------------------------------------------------------------
    async def _begin(self) -> None:
        """Raises if the store does not answer; what was taken is kept for the next pass."""
        if self._clock.monotonic() - self._taken_at > HOLD.total_seconds() / 2:
            # Too late to be sure that it is still ours.
            self._taken = ()
            return
        ids = {each.run_id for each in self._taken if each.run_id is not None}
        runs = await runs_of(self._store, ids)
        readers = Readers(self._store, self._settings)
        ready = [(each, *await self._known(each, readers)) for each in self._taken]
        self._taken = ()
        for delivery, reader, answer in ready:
            channel = delivery.recipient.channel
            self._busy[channel] += 1
            self.idle.clear()
            run = None if delivery.run_id is None else runs.get(delivery.run_id)
            task = asyncio.create_task(self._deliver(delivery, run, reader, answer))
            self._tasks.add(task)
            task.add_done_callback(partial(self._done, channel))

    async def _known(self, delivery: Delivery, readers: Readers) -> tuple[_Reader, Result | None]:
        """One about which nothing can be found out must not hold up the others."""
        reader = _Reader(asked=readers, language=delivery.recipient.language or USUAL)
        try:
            language, zone = await readers.of(delivery)
            reader = replace(reader, language=language, zone=zone)
            return reader, await self._admission.answer(delivery, readers)
        except StoreUnavailable:
            raise
        except Exception as error:
            return reader, self._broken(delivery, error)

    def _broken(self, delivery: Delivery, error: Exception) -> Retry:
        self._tell(SenderBroken(delivery=delivery, error=error))
        text = say("{type} in the channel itself", type=type(error).__name__)
        return Retry(error=text, code="broken")

    def _done(self, channel: Channel, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._busy[channel] -= 1
        if not self._tasks:
            self.idle.set()
        self._stirred.set()

    async def _deliver(
        self, delivery: Delivery, run: Run | None, reader: _Reader, answer: Result | None
    ) -> None:
        """`answer`: what is known without sending it."""
        began = self._clock.monotonic()
        sending = _Sending(delivery=delivery)
        try:
            async with asyncio.timeout(LONGEST_SENDING):
                result = await self._attempt(sending, run, reader, answer)
        except TimeoutError:
            error = say("timed out after {seconds:g} s", seconds=LONGEST_SENDING)
            result = Retry(error=error, code="timeout")
        except StoreUnavailable:
            error = say("the store did not answer")
            result = Retry(error=error, code="store_unavailable", holds_back=True)
        except Exception as error:
            result = self._broken(delivery, error)
        # Given up, its owner is to read so in any case (F75).
        letter = sending.letter or self._envelope(delivery, bare_message(delivery, reader.language))
        verdict = verdict_of(delivery, letter, result)
        told = taken_along(sending.along.members, delivery) if verdict.sent else ()
        seconds = self._clock.monotonic() - began
        if verdict.sent and sending.along.more:
            # Before that of the digest: as long as it is under way, they wait for it.
            await self._settle_others(delivery, sending.along)
        self.recorder.put(verdict, delivery, seconds, told)

    async def _attempt(
        self, sending: _Sending, run: Run | None, reader: _Reader, answer: Result | None
    ) -> Result:
        delivery = sending.delivery
        if answer is None and delivery.occasion is Occasion.DIGEST:
            along = sending.along = await gathered(self._store, delivery)
            if along.members:
                # In the language and with the keys that were wanted last.
                delivery = replace(delivery, recipient=along.newest.recipient)
                language, zone = await reader.asked.of(delivery)
                reader = replace(reader, language=language, zone=zone)
            else:
                # What it was to tell has gone another way.
                answer = Sent()
        letter = await self._letter(delivery, run, reader.language, reader.zone, sending.along)
        sending.letter = letter
        answer = answer or self._held_back.answer(delivery.recipient)
        return answer or await self._sent(letter)

    async def _settle_others(self, digest: Delivery, along: Gathered) -> None:
        """What it does not reach goes with the next digest."""
        try:
            async with asyncio.timeout(LONGEST_SETTLING):
                await settle_others(self._store, digest, along)
        except (TimeoutError, StoreUnavailable):
            pass
        except Exception as error:
            self._tell(SenderBroken(delivery=digest, error=error))

    async def _letter(
        self, delivery: Delivery, run: Run | None, language: str, zone: str, along: Gathered
    ) -> Letter:
        url = self._settings.public_url.rstrip("/")
        if delivery.occasion is Occasion.TEST:
            test = trial_message(delivery, language=language, zone=zone, public_url=url)
            return self._envelope(delivery, test)
        if delivery.occasion is Occasion.DIGEST:
            runs = await runs_of(self._store, along.runs)
            digest = digest_message(
                delivery, along, runs, language=language, zone=zone, public_url=url
            )
            return self._envelope(delivery, digest)

        def make() -> Letter:
            message = message_of(delivery, run, language=language, zone=zone, public_url=url)
            if delivery.recipient.channel is not Channel.INBOX:
                _ = message.text  # made here, beside the event loop, and kept
            return self._envelope(delivery, message)

        return await asyncio.to_thread(make) if _is_long(run) else make()

    def _envelope(self, delivery: Delivery, message: Message) -> Letter:
        return Letter(
            delivery_id=delivery.id,
            recipient=delivery.recipient,
            owner=delivery.owner,
            message=message,
            now=self._time.now(),
            progress=Progress(delivery.progress),
        )

    async def _sent(self, letter: Letter) -> Result:
        channel = letter.recipient.channel
        sender = self._senders[channel]
        hit("deliver.before_send")
        result = await sender.send(letter)
        hit("deliver.after_send")
        self._held_back.note(letter.recipient, result)
        return result


def _is_long(run: Run | None) -> bool:
    values = run.result.values() if run is not None and run.result else ()
    return any(not isinstance(value, str) or len(value) > LONG_TEXT for value in values)
