"""The reservations of calls in progress, until Envoy reports their usage at the end of their streams."""

from throttler.core.budgets import Reservation
from throttler.core.throttle import Caller

MOST = 65_536  # reservations that are remembered; of one that is forgotten the call's use is booked in full
ReservationKey = tuple[Caller, str]  # a caller, and the id of its call


class OpenReservations:
    """Reservations by caller and call; the oldest comes first. Ids are unique for a caller only.

    A caller that gives two calls one id loses what the first one did not use, until it leaves the window.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._open: dict[ReservationKey, Reservation] = {}

    def add(self, key: ReservationKey, reservation: Reservation) -> None:
        """Remember a reservation of a call that has an id, and forget the oldest one if there are too many."""
        _, request = key
        if not (request and reservation.bookings):
            return
        self._open.pop(key, None)
        self._open[key] = reservation
        if len(self._open) > self._most:
            del self._open[next(iter(self._open))]

    def take(self, key: ReservationKey) -> Reservation | None:
        """Return the reservation of a call that has ended, and forget it; None if there is none."""
        return self._open.pop(key, None)
