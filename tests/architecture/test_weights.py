"""The house does not grow: ceilings in syntax nodes, which denser lines do not get below."""

from tests.architecture.weights import rooms, weigh

#: What the package and the tests may weigh. The ceilings follow the weights down.
MOST_NODES = {"distfms": 249_650, "tests": 188_850}
#: Median of the nodes a line in longer functions of the package, and share of dense ones.
MOST_DENSITY = 7.3
MOST_DENSE = 0.04
#: Habits of the package, in a thousand lines.
MOST_HABITS = {"vague": 3.3, "nested": 0.2, "tuples": 1.3}


def test_weights_stay_below_their_ceilings() -> None:
    weights = {room: weigh(files) for room, files in rooms().items() if room in MOST_NODES}
    for room, most in MOST_NODES.items():
        assert weights[room].nodes <= most, room
    package = weights["distfms"]
    assert package.density <= MOST_DENSITY
    assert package.dense_share <= MOST_DENSE
    for habit, most in MOST_HABITS.items():
        assert package.a_thousand(habit) <= most, habit
