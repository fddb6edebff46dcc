"""Channels of a Linux sandbox (docs/linux-channels.md), by the C library.

    with Receiver("orders") as orders:
        message = orders.receive(timeout=1.0)   # None: nothing came

SPDX-License-Identifier: Apache-2.0 OR MIT
"""

import ctypes
import os

_NEWS = {
    -3: "lost", -4: "left", -5: "corrupted", -6: "foreign",
    -7: "size", -8: "closed", -9: "argument", -10: "open", -11: "fault",
}
_WAIT, _APART, _OPEN = -1, -2, -10


def _load():
    here = os.path.dirname(os.path.abspath(__file__))
    name = "libbulkhead_channel_c.so"
    beside = os.path.join(here, name)
    path = os.environ.get("BULKHEAD_CHANNEL") or (beside if os.path.exists(beside) else name)
    library = ctypes.CDLL(path)
    handle, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    number, wide, out = ctypes.c_int, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p)
    for function, result, *arguments in (
        ("bulkhead_channel_error", text),
        ("bulkhead_sender_open", number, text, ctypes.c_uint32, out),
        ("bulkhead_send", number, handle, ctypes.c_char_p, size, wide),
        ("bulkhead_sender_longest", size, handle),
        ("bulkhead_sender_close", None, handle),
        ("bulkhead_receiver_open", number, text, out),
        ("bulkhead_receive", wide, handle, ctypes.c_char_p, size, wide),
        ("bulkhead_receiver_longest", size, handle),
        ("bulkhead_receiver_fd", number, handle),
        ("bulkhead_receiver_arm", number, handle),
        ("bulkhead_receiver_close", None, handle),
    ):
        entry = getattr(library, function)
        entry.restype, entry.argtypes = result, arguments
    return library


_library = _load()


class News(Exception):
    """What became of the peer, or why a call was not done: `what` is one word."""

    def __init__(self, number):
        self.what = _NEWS.get(number, str(number))
        text = self.what
        if number == _OPEN:
            text = _library.bulkhead_channel_error().decode(errors="replace")
        super().__init__(text)


def _millis(timeout):
    return -1 if timeout is None else max(0, int(timeout * 1000))


class _End:
    _close = None

    def __init__(self):
        self._handle = ctypes.c_void_p()

    def _opened(self, number):
        if number < 0:
            raise News(number)

    def close(self):
        """Leaves: the peer is told."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        getattr(_library, self._close)(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Sender(_End):
    """The sending end; of several receivers the `nth`."""

    _close = "bulkhead_sender_close"

    def __init__(self, name, nth=0):
        super().__init__()
        self._opened(_library.bulkhead_sender_open(name.encode(), nth, ctypes.byref(self._handle)))
        self.longest = _library.bulkhead_sender_longest(self._handle)

    def send(self, message, timeout=None):
        """Whether it was sent within the time; without one it waits for ever."""
        number = _library.bulkhead_send(self._handle, message, len(message), _millis(timeout))
        if number in (_WAIT, _APART):
            return False
        self._opened(number)
        return True


class Receiver(_End):
    """The receiving end."""

    _close = "bulkhead_receiver_close"

    def __init__(self, name):
        super().__init__()
        self._opened(_library.bulkhead_receiver_open(name.encode(), ctypes.byref(self._handle)))
        self.longest = _library.bulkhead_receiver_longest(self._handle)
        self._buffer = ctypes.create_string_buffer(self.longest)

    def receive(self, timeout=None):
        """A message, or None if none came within the time; without one it waits for ever."""
        number = _library.bulkhead_receive(self._handle, self._buffer, self.longest, _millis(timeout))
        if number in (_WAIT, _APART):
            return None
        self._opened(number)
        return self._buffer.raw[:number]

    def fileno(self):
        """For select and asyncio, after `arm`."""
        number = _library.bulkhead_receiver_fd(self._handle)
        self._opened(number)
        return number

    def arm(self):
        """Asks to be woken; whether the caller may sleep. If not, there is something to be received."""
        number = _library.bulkhead_receiver_arm(self._handle)
        self._opened(number)
        return number == 1
