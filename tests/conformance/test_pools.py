"""Every pool of actors keeps the same contract and gives the same bits."""

import numpy as np
import pytest
from scipy.optimize import minimize

from distfms.engine.blas import single_threaded_blas
from distfms.engine.local import LocalExecutor, SerialPool
from distfms.errors import EngineError, SpecError
from tests.conformance import pool_tasks as tasks

N_SHARDS = 5
ROUND_OF_MISHAP = 7


@pytest.fixture(
    scope="module",
    params=[
        *("serial-1", "local-3", "ray-3", "dask-2"),
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("local-1", "local-8", "ray-1", "ray-2")
        ),
    ],
)
def pool(request):
    with tasks.pool_asked_for(request) as made:
        yield made


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The whole problem in one place, sums over shards in order."""
    folder = tmp_path_factory.mktemp("reference")
    states = [tasks.build(shard) for shard in tasks.shards(folder, N_SHARDS)]

    def evaluate(weights):
        return in_order([tasks.loss_and_gradient(state, (weights, None))[1] for state in states])

    with single_threaded_blas():
        return fit(evaluate)


def in_order(answers):
    loss, gradient = answers[0]
    for more, direction in answers[1:]:
        loss = loss + more
        gradient = gradient + direction
    return loss, gradient


def fit(evaluate):
    start = np.zeros(tasks.N_COLUMNS)
    return minimize(evaluate, start, jac=True, method="L-BFGS-B", options={"maxiter": 30})


def counts_of(pool):
    return dict(vars(pool.counts))


def change(pool, before):
    """What was done since, without zeros."""
    return {k: v - before[k] for k, v in vars(pool.counts).items() if v != before[k]}


def kill(pool, shard):
    """What ends the process of a shard; the process of a serial pool is this one."""
    return None if pool.name == "serial" else tasks.Mishap(shard, "kill")


def lost_shards(pool, shard):
    """Shards that are built again after the mishap of one."""
    if pool.name == "serial":
        return []
    return [index for index in range(N_SHARDS) if index % pool.n_actors == shard % pool.n_actors]


def test_distributed_least_squares(pool, reference, tmp_path):
    shards = tasks.shards(tmp_path, N_SHARDS)
    before = counts_of(pool)
    pool.start(tasks.build, shards)

    def evaluate(weights):
        now = pool.counts.n_steps - before["n_steps"] + 1 == ROUND_OF_MISHAP
        mishap = kill(pool, 3) if now else None
        return in_order(pool.step(tasks.loss_and_gradient, (weights, mishap)))

    found = fit(evaluate)
    assert found.nfev > ROUND_OF_MISHAP
    assert found.x.tobytes() == reference.x.tobytes()
    assert np.float64(found.fun).tobytes() == np.float64(reference.fun).tobytes()
    # Evaluations leave the states as they were: nothing is replayed.
    lost = lost_shards(pool, 3)
    expected = {"n_steps": found.nfev, "n_built": N_SHARDS + len(lost)}
    assert change(pool, before) == expected | ({"n_lost": 1} if lost else {})
    assert [shard.counted("built") for shard in shards] == [
        2 if shard.index in lost else 1 for shard in shards
    ]


def test_chain_is_replayed_to_the_bit(pool, tmp_path):
    shards = tasks.shards(tmp_path, N_SHARDS)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    expected = []
    with single_threaded_blas():
        for shard in tasks.shards(elsewhere, N_SHARDS):
            state = tasks.build(shard)
            for _ in range(4):
                _, weights = tasks.walk(state, (3, None))
            expected.append(weights.tobytes())
    before = counts_of(pool)
    pool.start(tasks.build, shards)
    for _ in range(3):
        pool.step(tasks.walk, (3, None))
    answers = pool.step(tasks.walk, (3, kill(pool, 3)))
    assert [answer.tobytes() for answer in answers] == expected
    n_lost = len(lost_shards(pool, 3))
    done = change(pool, before)
    assert done.get("n_replayed", 0) == 3 * n_lost
    assert done["n_built"] == N_SHARDS + n_lost


def test_items_go_to_free_actors(pool, tmp_path):
    pool.start(tasks.alike, tasks.shards(tmp_path, pool.n_actors))
    unit = float(tasks.build(tasks.Shard(0, str(tmp_path))).X[0, 0])
    answers = pool.map(tasks.evaluate, [(n, None) for n in range(9)])
    assert answers == [(n, unit * n) for n in range(9)]
    assert pool.map(tasks.evaluate, []) == []
    assert pool.step(lambda rows, message: (None, message), 1) == [1] * pool.n_actors


def test_item_of_a_lost_actor_is_done_again(pool, tmp_path):
    before = counts_of(pool)
    pool.start(tasks.alike, tasks.shards(tmp_path, pool.n_actors))
    pool.step(tasks.walk, (2, None))  # replayed to the new actor
    items = [(n, kill(pool, 0)) for n in range(8)]
    answers = pool.map(tasks.evaluate, items)
    assert [number for number, _ in answers] == list(range(8))
    lost = {} if pool.name == "serial" else {"n_lost": 1, "n_replayed": 1}
    n_built = pool.n_actors + len(lost) // 2
    assert change(pool, before) == {"n_steps": 1, "n_items": 8, "n_built": n_built} | lost


def test_error_of_an_item(pool):
    pool.start(int, [0] * pool.n_actors)
    with pytest.raises(ZeroDivisionError):
        pool.map(lambda state, item: 12 // item, [3, 4, 0, 6])
    with pytest.raises(EngineError, match="not running: start it"):
        pool.map(lambda state, item: item, [1])


def test_nobody_shares_memory(pool, tmp_path):
    pool.start(tasks.build, tasks.shards(tmp_path, 3))
    message = np.zeros(tasks.N_COLUMNS)
    for step in (1.0, 2.0):
        for changed, weights in pool.step(tasks.scribble, message):
            assert changed.tolist() == [1.0] * tasks.N_COLUMNS
            assert weights.tolist() == [step] * tasks.N_COLUMNS
            weights += 100
    assert not message.any()


def test_closures_travel(pool):
    offset = 10
    pool.start(lambda shard: shard + offset, [1, 2, 3])
    assert pool.step(lambda state, message: (state + message, state), 5) == [11, 12, 13]
    assert pool.step(lambda state, message: (None, state)) == [16, 17, 18]


def test_error_of_the_first_shard_is_told(pool, tmp_path):
    pool.start(tasks.build, tasks.shards(tmp_path, N_SHARDS))
    with pytest.raises(ValueError, match=r"^shard 2 is of no use$"):
        pool.step(tasks.refuse, 2)
    with pytest.raises(EngineError, match="not running: start it"):
        pool.step(tasks.refuse, 100)
    pool.start(tasks.build, tasks.shards(tmp_path, 2))
    assert pool.step(tasks.refuse, 100) == [None, None]


def test_build_is_tried_again_after_a_transient_error(pool, tmp_path):
    shards = tasks.shards(tmp_path, 3)
    before = counts_of(pool)
    pool.start(tasks.build_at_second_attempt, shards)
    assert change(pool, before) == {"n_built": 3, "n_retries": 3}
    assert pool.step(lambda state, message: (None, state)) == [0, 1, 2]


def test_steps_run_with_one_blas_thread(pool, tmp_path):
    pool.start(tasks.build, tasks.shards(tmp_path, 3))
    for threads in pool.step(tasks.blas_threads):
        assert threads
        assert set(threads) == {1}


def test_bad_use():
    with pytest.raises(SpecError, match="at least 1 actor; there are 0"):
        LocalExecutor(1).pool(0)
    with pytest.raises(SpecError, match=r"one actor needs about 1\.0 TiB.*fewer actors"):
        SerialPool(actor_bytes=2**40)
    with pytest.raises(SpecError, match=r"2 actors needs about 1\.0 TiB"):
        LocalExecutor(2).pool(actor_bytes=2**39)
    with SerialPool() as pool, pytest.raises(EngineError, match="at least one shard"):
        pool.start(tasks.build, [])


def test_closed_pool_says_so():
    pool = SerialPool()
    pool.start(int, ["1"])
    pool.close()
    pool.close()
    with pytest.raises(EngineError, match="not running"):
        pool.step(tasks.refuse)
