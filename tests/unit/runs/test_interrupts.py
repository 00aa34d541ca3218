"""The orderly end of a job that is told to stop. No signal is sent: handlers are called."""

import signal
import threading

import pytest

from distfms.runs.interrupts import orderly_end


def stopped(number, tell):
    with orderly_end(tell):
        if number != signal.SIGINT:
            signal.getsignal(number)(number, None)
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_codes_and_words(number, code):
    before = signal.getsignal(number)
    messages = []
    with pytest.raises(SystemExit) as ended:
        stopped(number, messages.append)
    assert ended.value.code == code
    assert len(messages) == 1
    assert "to resume" in messages[0]
    assert signal.getsignal(number) == before


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with orderly_end(print):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_are_left_alone():
    messages = []
    errors = []

    def work():
        try:
            with orderly_end(messages.append):
                raise KeyboardInterrupt
        except BaseException as error:
            errors.append(type(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (errors, messages) == ([KeyboardInterrupt], [])


def test_handler_that_was_not_set_from_python(monkeypatch):
    installed = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: installed.append(handler))
    with orderly_end(print):
        pass
    assert installed[-1] == signal.SIG_DFL
