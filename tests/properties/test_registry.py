"""A registry against the plainest account of what it should hold."""

import uuid

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from distfms.errors import EngineError, SpecError
from distfms.registry import Registry
from distfms.store.places import locate, remove_tree


class RegistryMachine(RuleBasedStateMachine):
    """Versions by number, the one in place, and those that were there before it."""

    def __init__(self):
        super().__init__()
        self.place = locate(f"memory://{uuid.uuid4().hex}")
        self.registry = Registry(self.place)
        self.contents = {}
        self.last = 0
        self.current = None
        self.before = []
        self.n_changes = 0

    def teardown(self):
        remove_tree(self.place)

    @rule(tag=st.integers(0, 5))
    def add(self, tag):
        version = self.registry.add("m", {"model": bytes([tag])}, {"tag": tag}, self.current)
        known = [number for number, held in self.contents.items() if held == tag]
        if known:
            assert [version.number] == known
            return
        self.last += 1
        assert version.number == self.last
        self.contents[version.number] = tag

    @precondition(lambda self: self.last)
    @rule(data=st.data(), right=st.booleans())
    def promote(self, data, right):
        number = data.draw(st.integers(1, self.last))
        expected = self.current if right else -1
        if not right or number not in self.contents:
            with pytest.raises((SpecError, EngineError)):
                self.registry.promote("m", number, expected)
            return
        self.registry.promote("m", number, expected)
        if number != self.current:
            self.before += [] if self.current is None else [self.current]
            self.current = number
            self.n_changes += 1

    @rule()
    def rollback(self):
        if not self.before:
            with pytest.raises(SpecError):
                self.registry.rollback("m")
            return
        self.current = self.before.pop()
        assert self.registry.rollback("m").version == self.current
        self.n_changes += 1

    @precondition(lambda self: self.last)
    @rule(keep=st.integers(0, 3))
    def gc(self, keep):
        newest = sorted(self.contents)[-max(keep, 1) :]
        kept = {*newest, self.current, *self.before[-1:]}
        gone = [number for number in self.contents if number not in kept]
        assert self.registry.gc("m", keep) == gone
        for number in gone:
            del self.contents[number]
        self.before = [number for number in self.before if number in self.contents]
        self.n_changes += bool(gone)

    @invariant()
    def holds_what_it_should(self):
        numbers = [version.number for version in self.registry.versions("m")]
        assert numbers == sorted(self.contents)
        for number, tag in self.contents.items():
            assert self.registry.read("m", number)[1] == {"model": bytes([tag])}
        assert self.registry.last("m").version == self.current
        if self.current is not None:
            assert self.registry.read("m")[0].number == self.current
        assert len(self.registry.history("m")) == self.n_changes


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=30, stateful_step_count=20)
