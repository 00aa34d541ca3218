"""The orderly end of a job that is told to stop. No signal is sent: handlers are called."""

import signal
import threading

import pytest

from distfms.runs.interrupts import orderly_end


def stopped(number, tell):
    with orderly_end(tell):
        if number == signal.SIGTERM:
            signal.getsignal(signal.SIGTERM)(number, None)
        raise KeyboardInterrupt


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_codes_and_words(number, code):
    before, said = signal.getsignal(signal.SIGTERM), []
    with pytest.raises(SystemExit) as ended:
        stopped(number, said.append)
    assert ended.value.code == code
    assert len(said) == 1
    assert "goes on from" in said[0]
    assert signal.getsignal(signal.SIGTERM) == before


def test_handler_that_was_not_set_from_python(monkeypatch):
    installed = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: installed.append(handler))
    with orderly_end(print):
        pass
    assert installed[-1] == signal.SIG_DFL


def test_other_threads_are_left_alone():
    said, errors = [], []

    def work():
        try:
            with orderly_end(said.append):
                raise KeyboardInterrupt
        except BaseException as error:
            errors.append(type(error))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (errors, said) == ([KeyboardInterrupt], [])
    assert signal.getsignal(signal.SIGTERM) == before
