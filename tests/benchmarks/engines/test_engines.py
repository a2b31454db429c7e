"""Engines measured in processes of their own: every adapter's contract, failures, the journal, what a kill leaves."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tonnage.benchmarks.engines import session
from tonnage.benchmarks.engines.data import prepare_data
from tonnage.benchmarks.engines.environments import missing
from tonnage.benchmarks.engines.folder import BenchFolder
from tonnage.benchmarks.engines.session import carry_out, clean_bench, prepare_all
from tonnage.benchmarks.engines.worker_process import MARK, end_marked, free_port_pairs, left_processes
from tonnage.errors import InputError
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.reading import read_bench
from tonnage.side_by_side.spec import BenchSpec

ENGINES = ("scikit-learn", "xgboost", "lightgbm", "catboost", "pytorch")


def bench(engines: str, *, task: str = "binary", rows: int = 600, more: str = "repeats: 1") -> BenchSpec:
    return read_bench(
        f"bench:\n  name: t\n  threads: 2\n  {more}\n"
        f"  data: [{{name: d, task: {task}, generate: {{rows: {rows}, columns: 5}}, target: 0.6}}]\n"
        f"  engines: [{engines}]\n"
    )


def carried(spec: BenchSpec, folder: Path) -> list[BenchCell]:
    return list(carry_out(spec, BenchFolder(folder), folder / "home", say=print).cells)


@pytest.mark.heavy
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_keeps_the_contract(engine: str, tmp_path: Path) -> None:
    """It learns more than chance, times every phase, and reports a mark a pass in order of time."""
    if missing(engine, tmp_path):  # type: ignore[arg-type]
        pytest.skip(f"{engine} is not installed")
    size = "epochs: 8, batch: 64" if engine == "pytorch" else "rounds: 8"
    (cell,) = carried(bench(f"{{engine: {engine}, {size}}}"), tmp_path)
    assert cell.reason is None
    assert cell.quality is not None
    assert cell.quality > 0.6
    assert [passes for passes, _, _ in cell.curve] == list(range(1, 9))
    times = [seconds for _, seconds, _ in cell.curve]
    assert times == sorted(times)
    assert cell.train_s is not None
    assert times[-1] <= cell.train_s
    assert cell.peak_rss_bytes is not None
    assert cell.peak_rss_bytes > 10 * 2**20
    assert len(cell.cores) == min(2, os.cpu_count() or 1)


@pytest.mark.heavy
def test_lightgbm_takes_fewer_rows_a_leaf_than_usual(tmp_path: Path) -> None:
    """LightGBM drops columns by the least rows of a leaf when it reads them: it must know a trial's value then."""
    pytest.importorskip("lightgbm")
    (cell,) = carried(bench("{engine: lightgbm, rounds: 3, native: {min_data_in_leaf: 2}}"), tmp_path)
    assert cell.reason is None


@pytest.mark.slow
def test_two_workers_share_the_rows(tmp_path: Path) -> None:
    """DDP over gloo: two processes, each its own, one model."""
    (cell,) = carried(bench("{engine: pytorch, workers: 2, epochs: 8, batch: 64}"), tmp_path)
    assert cell.reason is None
    assert sorted(one["rank"] for one in cell.workers) == [0, 1]
    assert len({one["pid"] for one in cell.workers}) == 2
    assert cell.quality is not None
    assert cell.quality > 0.6


@pytest.mark.slow
def test_shares_of_a_model_learn_what_a_whole_one_does(tmp_path: Path) -> None:
    """FSDP, freeing gathered weights or keeping them, does the same sums as DDP: the same curve to rounding, and its
    steps are looked into on both ranks."""
    pytest.importorskip("torch")
    same = "workers: 2, epochs: 4, batch: 64, hidden: [16, 8]"
    spec = bench(
        f"{{engine: pytorch, {same}}}, {{engine: pytorch-fsdp, {same}}},"
        f"{{engine: pytorch-fsdp, name: kept, sharding: zero2, {same}}},"
        "{engine: pytorch-fsdp, name: scaled, epochs: 2, batch: 64, scaling: {workers: [1, 2], kinds: strong}}"
    )
    cells = {cell.engine: cell for cell in carried(spec, tmp_path)}
    assert {name: cell.reason for name, cell in cells.items()} == dict.fromkeys(cells)
    wanted = [value for _, _, value in cells["pytorch"].curve]
    assert len(wanted) == 4
    for name in ("pytorch-fsdp", "kept"):
        assert [value for _, _, value in cells[name].curve] == pytest.approx(wanted, abs=0.01)
    assert len(cells["scaled-2w"].steps) == 2
    for rank in cells["scaled-2w"].steps:
        assert min(rank["alone_s"] or 0.0, rank["synced_s"] or 0.0) > 0.0


@pytest.mark.slow
def test_scaling_looks_into_the_steps_of_every_worker(tmp_path: Path) -> None:
    """One worker and two: what each rank's step is made of, and a weak point on half the rows."""
    pytest.importorskip("torch")
    spec = bench("{engine: pytorch, epochs: 2, batch: 64, scaling: {workers: [1, 2]}}")
    cells = {cell.engine: cell for cell in carried(spec, tmp_path)}
    assert {cell.reason for cell in cells.values()} == {None}
    assert {name: len(cell.steps) for name, cell in cells.items()} == {
        "pytorch-1w": 1, "pytorch-1w-weak": 1, "pytorch-2w": 2,
    }  # fmt: skip
    assert cells["pytorch-1w-weak"].train_rows == (cells["pytorch-1w"].train_rows or 0) // 2
    for cell in cells.values():
        for rank in cell.steps:
            assert min(rank["input_s"] or 0.0, rank["alone_s"] or 0.0, rank["synced_s"] or 0.0) > 0.0
    assert [rank["rows"] for rank in cells["pytorch-2w"].steps] == [32, 32]


@pytest.mark.heavy
@pytest.mark.usefixtures("light_engines")
def test_two_benches_at_once_share_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker sees its own GPU alone, has its own folder and ports, and the end of one does not end the other."""
    monkeypatch.setattr(session, "lacking", lambda *_: None)  # these GPUs are not here; the light engine needs none
    specs = [bench(f'{{engine: xgboost, rounds: 5, devices: ["{gpu}"]}}') for gpu in (3, 5)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(carried, specs, [tmp_path / "one", tmp_path / "two"]))
    (one,), (two,) = found
    assert (one.reason, two.reason) == (None, None)
    assert [cell.workers[0]["devices"] for cell in (one, two)] == ["3", "5"]
    assert one.workers[0]["pid"] != two.workers[0]["pid"]
    assert one.quality == two.quality
    jobs = [json.loads(next((tmp_path / name).glob("cells/*/job.json")).read_text()) for name in ("one", "two")]
    assert not set(jobs[0]["ports"]) & set(jobs[1]["ports"])
    assert jobs[0]["folder"] != jobs[1]["folder"]


def test_ports_that_are_taken_are_not_given_out() -> None:
    """H2O takes a port and the next: neither is one that something listens on."""
    with contextlib.ExitStack() as held:
        taken = set()
        for port in free_port_pairs(4):
            listener = held.enter_context(socket.socket())
            listener.bind(("127.0.0.1", port))
            listener.listen()
            taken.add(port)
        for port in free_port_pairs(6):
            assert not {port, port + 1} & taken


@pytest.mark.heavy
@pytest.mark.usefixtures("light_engines")
def test_a_worker_that_fails_leaves_the_rest_alone(tmp_path: Path) -> None:
    """A parameter that an engine refuses makes a failed cell with the engine's words; the engine after it runs."""
    engines = "{engine: xgboost, rounds: 2, native: {refused: -3}}, {engine: scikit-learn, rounds: 2}"
    failed, good = carried(bench(engines), tmp_path)
    assert failed.reason == "ended with exit code 1 | ValueError: refused is -3, expected nothing"
    assert good.reason is None


@pytest.mark.heavy
@pytest.mark.usefixtures("light_engines")
def test_a_cell_out_of_time_has_failed(tmp_path: Path) -> None:
    """The limit ends the worker, and the cell says so, and what the worker was at."""
    endless = "{engine: xgboost, rounds: 100000, native: {pause_s: 0.1}}"
    (cell,) = carried(bench(endless, more="repeats: 1\n  timeout: 1s"), tmp_path)
    phases = "starting|warming up|preparing the rows|training"
    assert re.fullmatch(f"not done after 1 s(, while ({phases}))?", cell.reason or "")


@pytest.mark.heavy
def test_what_leaves_the_session_is_ended_too(tmp_path: Path) -> None:
    """H2O starts its Java in a session of its own: the mark in the environment finds it, and no other bench's."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    own, other = (
        subprocess.Popen(sleeper, env=os.environ | {MARK: str(tmp_path / name)}, start_new_session=True)
        for name in ("own", "other")
    )
    try:
        wait_for(lambda: bool(left_processes(tmp_path / "own")) and bool(left_processes(tmp_path / "other")))
        assert end_marked(tmp_path / "own") == 1
        assert own.poll() is not None
        assert other.poll() is None
    finally:
        for one in (own, other):
            one.kill()
            one.wait()


@pytest.mark.heavy
def test_a_kill_loses_no_finished_cell_and_leaves_no_worker(tmp_path: Path) -> None:
    """kill -9 in the second cell: the first stays, the worker ends, `--resume` measures the rest alone."""
    file = tmp_path / "b.yaml"
    file.write_text(
        "bench: {name: t, repeats: 1, data: [{name: d, generate: {rows: 600, columns: 5}}], engines: ["
        "{engine: scikit-learn, rounds: 2}, {engine: xgboost, rounds: 300000}]}",
        encoding="utf-8",
    )
    place = os.environ | {"TONNAGE_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "tonnage", "bench", str(file)]
    running = subprocess.Popen(command, env=place, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    folder = BenchFolder(tmp_path / "home" / "benches" / "t")
    wait_for(lambda: len(folder.cells()) == 1 and bool(left_processes(folder.path)))
    running.send_signal(signal.SIGKILL)
    running.wait()
    clean_bench(folder)
    wait_for(lambda: not left_processes(folder.path))
    assert [cell.engine for cell in folder.cells()] == ["scikit-learn"]
    again = subprocess.run(command, env=place, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "--resume" in again.stderr


def wait_for(holds: object, limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    """What a kill left of a line counts as nothing, and the next cell starts a line of its own."""
    folder = BenchFolder(tmp_path)
    folder.append(BenchCell(data="d", engine="one", turn=0))
    with open(folder.journal, "a", encoding="utf-8") as file:
        file.write('{"data": "d", "eng')
    folder.append(BenchCell(data="d", engine="two", turn=0))
    assert [cell.engine for cell in folder.cells()] == ["one", "two"]
    assert len([json.loads(line) for line in folder.journal.read_text("utf-8").splitlines()]) == 2


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a byte is written, with what is needed and free; one that fills up meanwhile is an error of the disk,
    not of the program: numpy leaves out its number."""
    spec = bench("{engine: xgboost}", rows=3000)
    room = SimpleNamespace(free=1000)
    monkeypatch.setattr("tonnage.benchmarks.engines.data.shutil.disk_usage", lambda _: room)
    with pytest.raises(InputError, match=r"needs 0\.0687 MiB in .*, 0\.000954 MiB are free"):
        prepare_data(spec, spec.data[0], tmp_path / "d", memory_bytes=1e9)
    room.free = 10**9

    def short(*_: object) -> None:
        raise OSError("560000 requested and 521184 written")

    monkeypatch.setattr("tonnage.benchmarks.engines.data.np.save", short)
    with pytest.raises(OSError, match="No space left") as caught:
        prepare_data(spec, spec.data[0], tmp_path / "d", memory_bytes=1e9)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path / "d" / "train_features.npy")


def test_another_file_is_not_resumed(tmp_path: Path) -> None:
    """Cells of another file cannot stand beside new ones."""
    folder = BenchFolder(tmp_path / "b")
    folder.begin(bench("{engine: xgboost}"), resume=False)
    folder.append(BenchCell(data="d", engine="xgboost", turn=0))
    with pytest.raises(InputError, match="has changed"):
        folder.begin(bench("{engine: lightgbm}"), resume=True)


def test_a_dry_run_does_not_hold_the_bench_to_its_file(tmp_path: Path) -> None:
    """Nothing is measured yet: the file may be mended, the bench begun without --fresh, its tables are made anew."""
    folder = BenchFolder(tmp_path / "b")
    small, large = (bench("{engine: xgboost}", rows=rows) for rows in (600, 900))
    folder.begin(small, resume=True)
    prepare_all(small, folder)
    for resume in (True, False):
        folder.begin(large, resume=resume)
        assert sum(prepare_all(large, folder)["d"].rows.values()) == 900
    (folder.path / "search").mkdir()
    (folder.path / "search" / "d-xgboost.db").write_text("")
    with pytest.raises(InputError, match="is there already"):
        folder.begin(large, resume=False)


def test_other_rows_than_finished_cells_had_are_refused(tmp_path: Path) -> None:
    """A file that changed after `bench clean` took its table away: nothing is measured beside the old cells."""
    rows = "\n".join(f"{n},{n % 2}" for n in range(60))
    (tmp_path / "t.csv").write_text(f"a,b\n{rows}\n", encoding="utf-8")
    spec = read_bench(
        "bench: {name: t, data: [{name: d, file: t.csv, label: b}], engines: [{engine: xgboost}]}", folder=tmp_path
    )
    folder = BenchFolder(tmp_path / "bench")
    prepare_all(spec, folder)
    folder.append(BenchCell(data="d", engine="xgboost", turn=0))
    clean_bench(folder)
    prepare_all(spec, folder)
    clean_bench(folder)
    (tmp_path / "t.csv").write_text(f"a,b\n{rows}\n99,1\n", encoding="utf-8")
    with pytest.raises(InputError, match="rows of data set 'd' have changed"):
        prepare_all(spec, folder)


def test_rows_and_splits_are_the_same_each_time(tmp_path: Path) -> None:
    """The same file gives the same bytes; no row is in two parts, and none is lost."""
    spec = bench("{engine: xgboost}")
    one = prepare_data(spec, spec.data[0], tmp_path / "one", memory_bytes=1e9)
    two = prepare_data(spec, spec.data[0], tmp_path / "two", memory_bytes=1e9)
    assert one.digests == two.digests
    parts = [np.load(tmp_path / "one" / f"{part}_features.npy") for part in one.rows]
    assert len(np.unique(np.concatenate(parts), axis=0)) == 600


def test_a_table_that_does_not_fit_is_refused_with_what_fits(tmp_path: Path) -> None:
    """Nothing is drawn before it is known to fit."""
    spec = bench("{engine: xgboost}", rows=10_000_000)
    with pytest.raises(InputError, match="are free") as caught:
        prepare_data(spec, spec.data[0], tmp_path / "d", memory_bytes=1.2e6)
    assert caught.value.hint == "rows: 10000 fits"


def test_a_table_that_a_device_cannot_hold_is_refused_before_it_is_drawn(tmp_path: Path) -> None:
    """With a pretended device of 1 GiB; nothing is on the disk."""
    spec = bench('{engine: xgboost, devices: ["0"]}', rows=50_000_000)
    with pytest.raises(InputError, match="on each GPU of xgboost, 1 GiB are there"):
        prepare_all(spec, BenchFolder(tmp_path), device_memory={"0": 2.0**30})
    assert list(tmp_path.iterdir()) == []


def test_a_csv_becomes_numbers(tmp_path: Path) -> None:
    """Words become codes in order of the alphabet; a column that is not there is refused with those that are."""
    rows = "\n".join(f"{'red' if n % 2 else 'blue'},{n},{'yes' if n % 2 else 'no'}" for n in range(40))
    (tmp_path / "t.csv").write_text(f"colour,size,bought\n{rows}\n", encoding="utf-8")
    text = "bench: {{name: t, data: [{{name: d, file: t.csv, label: {label}}}], engines: [{{engine: xgboost}}]}}"
    spec = read_bench(text.format(label="bought"), folder=tmp_path)
    made = prepare_data(spec, spec.data[0], tmp_path / "d", memory_bytes=1e9)
    features, target = (np.load(made.folder / f"train_{name}.npy") for name in ("features", "target"))
    assert (features[:, 0] == target).all()
    wrong = read_bench(text.format(label="sold"), folder=tmp_path)
    with pytest.raises(InputError, match="no column 'sold'"):
        prepare_data(wrong, wrong.data[0], tmp_path / "w", memory_bytes=1e9)


def test_a_file_that_does_not_fit_is_refused_too(tmp_path: Path) -> None:
    """With the number of its rows that fits, before any engine starts."""
    (tmp_path / "t.csv").write_text("a,b\n" + "1,0\n2,1\n" * 50, encoding="utf-8")
    text = "bench: {name: t, data: [{name: d, file: t.csv, label: b}], engines: [{engine: xgboost}]}"
    spec = read_bench(text, folder=tmp_path)
    with pytest.raises(InputError, match="are free") as caught:
        prepare_data(spec, spec.data[0], tmp_path / "d", memory_bytes=1200.0)
    assert caught.value.hint == "rows: 50 fits"


def test_the_auc_is_that_of_scikit_learn() -> None:
    """Ties count half, as in sklearn.metrics.roc_auc_score."""
    sklearn = pytest.importorskip("sklearn.metrics")
    from tonnage.benchmarks.engines.apart.engine_workers.table import auc

    random = np.random.default_rng(0)
    target = (random.random(500) > 0.4).astype(np.float32)
    score = np.round(random.random(500) + 0.3 * target, 1)
    assert auc(target, score) == pytest.approx(sklearn.roc_auc_score(target, score), abs=1e-12)


def test_an_engine_that_is_not_set_up_says_how_to_get_it(tmp_path: Path) -> None:
    """H2O needs an environment of its own."""
    assert missing("h2o-gbm", tmp_path) == "h2o-gbm has no environment: tonnage bench setup h2o"
    assert missing("sparkling-gbm", tmp_path) == "sparkling-gbm has no environment: tonnage bench setup sparkling"


def test_sparkling_water_on_a_cluster_by_its_address() -> None:
    """An executor a worker with its threads and memory; addresses are its own but where it is this host."""
    from tonnage.benchmarks.engines.apart.engine_workers.h2o_sparkling import session_settings
    from tonnage.benchmarks.engines.apart.engine_workers.spark_session import local_cluster

    job = {"threads": 4, "workers": 2, "memory_gib": 1.5, "folder": "/f", "ports": [5000], "master": None}
    assert local_cluster(job) == "local-cluster[2,2,1536]"
    here, near, far = (
        session_settings(job | {"master": one}, "water.jar")
        for one in (None, "spark://127.0.0.1:7077", "spark://head:7077")
    )
    assert "spark.cores.max" not in here
    assert far["spark.cores.max"] == near["spark.cores.max"] == "4"
    assert far["spark.executor.cores"] == "2"
    assert here["spark.driver.host"] == near["spark.driver.host"] == "127.0.0.1"
    assert not {"spark.driver.host", "spark.ext.h2o.base.port", "spark.ext.h2o.extra.properties"} & far.keys()
    assert far["spark.executor.memory"] == "1536m"
