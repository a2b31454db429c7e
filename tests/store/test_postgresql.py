"""The same store on PostgreSQL, by a server of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tonnage.runs import RunFolder
from tonnage.store import StoreError, open_store
from tonnage.store.database import Database

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty database."""
    pgserver = pytest.importorskip("pgserver")
    pytest.importorskip("psycopg")
    running = pgserver.get_server(tmp_path_factory.mktemp("pg"))
    yield running.get_uri()
    running.cleanup()


@pytest.mark.filterwarnings("ignore::UserWarning")  # platformdirs: no XDG_RUNTIME_DIR in a container
def test_the_store_is_the_same(server: str, folder: RunFolder) -> None:
    """Migrated by four at once, indexed twice, de-duplicated, emptied and filled again."""
    with ThreadPoolExecutor(4) as pool:
        for opened in pool.map(open_store, [server] * 4):
            opened.close()
    with open_store(server) as store:
        store.index_run(folder)
        store.index_run(folder)
        (row,) = store.runs()
        assert (row.name, row.state, row.events, row.usd) == ("one", "succeeded", 7, pytest.approx(4.0))
        assert row.host
        assert store.add_measurements([{"id": "a", "value": "1"}, {"id": "a", "value": "1"}]) == 1
        assert store.add_plan("{}", name="p") == store.plans()[0].sha256
    database = Database(server)
    database.migrate("base")
    database.migrate()
    database.close()


def test_a_server_that_is_not_there_is_named() -> None:
    """Without its password."""
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match="failed") as caught:
        open_store("postgresql://me:secret@127.0.0.1:1/none")
    assert "secret" not in caught.value.message
