"""What is known of a spot machine: traces, published bands, nothing; and what a save of the work takes."""

from __future__ import annotations

from math import exp, log

import pytest

from tonnage.catalog import Catalog, load_catalog
from tonnage.spot_instances.drawing import mean_h
from tonnage.spot_instances.knowledge import RUN_H, bands, machine_hazard, other_machines, spot_hazard
from tonnage.spot_instances.model_file import packaged_model
from tonnage.spot_instances.saves import machine_save_s, restore_s, save_rates, state_bytes
from tonnage.workload.jobs import BuyTerms

from ..planning.conftest import serve, train


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def test_traces_speak_of_their_own_machines() -> None:
    """A V100 of AWS has the fit as it is; the same GPU elsewhere has its level with a wider interval."""
    aws = spot_hazard("aws", "p3.2xlarge", "us-east-1", "V100-16GB", BuyTerms())
    gcp = spot_hazard("gcp", "n1-standard-4+1xV100", "us-central1", "V100-16GB", BuyTerms())
    assert (aws.known, aws.model) == ("traces", packaged_model())
    assert gcp.known == "other machines"
    assert gcp.per_h == pytest.approx(aws.per_h)
    assert gcp.model.up.log_spread > aws.model.up.log_spread


def test_a_closed_band_gives_its_rate() -> None:
    """10 to 15 % in a month over runs of a day: -ln(1 - 0.125) / 24 an hour; the interval covers runs of 4 to 168 h."""
    place, band = next((key, one) for key, one in bands().items() if one.low_percent == 10.0)
    found = spot_hazard(*place, "A10G", BuyTerms())
    assert (found.known, found.band) == ("band", band)
    assert found.per_h == pytest.approx(-log(1 - 0.125) / RUN_H, rel=1e-6)
    slow, fast = (1 / mean_h(found.model.up, sign * 1.2816) for sign in (-1, 1))
    assert slow < -log(1 - 0.1) / 120
    assert fast > -log(1 - 0.15) / 6


def test_bands_are_ordered() -> None:
    """A machine of a higher band is taken back more often, and the open band has the traces' level."""
    levels = {}
    for key, band in bands().items():
        if not key[1].startswith("p3"):
            levels[band.low_percent] = spot_hazard(*key, "A10G", BuyTerms()).per_h
    assert [levels[low] for low in sorted(levels)] == sorted(levels.values())
    assert levels[20.0] == pytest.approx(other_machines().per_h)


def test_what_the_workload_states_is_taken() -> None:
    """The stated rate, at every age, without an interval."""
    found = spot_hazard("aws", "p3.2xlarge", "us-east-1", "V100-16GB", BuyTerms(interruptions_per_hour=0.05))
    assert found.known == "stated"
    assert found.per_h == pytest.approx(0.05)
    assert mean_h(found.model.up, 1.28) == pytest.approx(20.0)


def test_bands_are_of_machines_that_exist(catalog: Catalog) -> None:
    """Each row names an instance type of the catalog, a band in order, a date."""
    known = {one.key for one in catalog.instance_types}
    for (provider, name, _), band in bands().items():
        assert (provider, name) in known
        assert 0 <= band.low_percent < band.high_percent <= 100


def test_saves_follow_what_is_trained(catalog: Catalog) -> None:
    """BERT: 12 bytes a parameter, 1.3 GB, 2.6 s at 0.5 GB/s and 1 s beside; adapters a hundredth; a service nothing."""
    machine = catalog.instance_type("p4d.24xlarge", "aws")
    full = state_bytes(train().job)
    assert full == pytest.approx(12 * 109.5e6, rel=0.02)
    assert machine_save_s(full, machine) == pytest.approx(1 + full / 0.5e9)
    assert state_bytes(serve().job) == 0.0
    assert machine_save_s(0.0, machine) == 0.0
    assert state_bytes(train("gpt-j-6b", method="lora").job) < 0.01 * state_bytes(train("gpt-j-6b").job)


def test_a_slow_network_bounds_a_save(catalog: Catalog) -> None:
    """A machine of less than 4 Gbit/s writes at its network's rate."""
    slow = next(one for one in catalog.instance_types if one.network_gbit_per_s and one.network_gbit_per_s < 4)
    assert slow.network_gbit_per_s is not None
    assert machine_save_s(1e9, slow) == pytest.approx(1 + 8.0 / slow.network_gbit_per_s)
    assert float(restore_s(1e9, save_rates([slow]))[0]) == pytest.approx(8.0 / slow.network_gbit_per_s)


def test_shards_are_written_at_the_same_time_up_to_the_stores_rate(catalog: Catalog) -> None:
    """Eight machines that write their parts take an eighth of one's time; Azure's store takes 25 Gbit/s from all."""
    amazon = catalog.instance_type("p4d.24xlarge", "aws")
    azure = catalog.instance_type("Standard_ND96asr_v4", "azure")
    for machine, at_once_gb_per_s in ((amazon, 4.0), (azure, 25 / 8)):
        assert machine_save_s(80e9, machine) == pytest.approx(1 + 80 / 0.5)
        assert machine_save_s(80e9, machine, 8) == pytest.approx(1 + 80 / at_once_gb_per_s)


def test_machines_that_hold_all_of_the_state_read_it_all(catalog: Catalog) -> None:
    """Under DDP sixteen machines read sixteen times the bytes; Azure's store gives 50 Gbit/s to all together."""
    amazon, azure = (
        save_rates([catalog.instance_type(*name)])
        for name in (("p4d.24xlarge", "aws"), ("Standard_ND96asr_v4", "azure"))
    )
    assert float(restore_s(80e9, amazon, 16, 1)[0]) == pytest.approx(80 / 0.5)
    assert float(restore_s(80e9, azure, 16, 1)[0]) == pytest.approx(16 * 80 / 6.25)
    assert float(restore_s(80e9, amazon, 16, 16)[0]) == pytest.approx(80 / 16 / 0.5)


def test_a_machines_hazard_is_that_of_plans(catalog: Catalog) -> None:
    """A traced machine has the fit; one with a band has it in its region and not elsewhere."""
    assert machine_hazard(catalog.instance_type("p3.2xlarge", "aws"), "").known == "traces"
    provider, name, region = next(key for key in bands() if catalog.instance_type(key[1], key[0]).accelerator == "A10G")
    machine = catalog.instance_type(name, provider)
    assert machine_hazard(machine, region).known == "band"
    assert machine_hazard(machine, "").known == "other machines"


def test_young_machines_are_lost_more_often() -> None:
    """A stated rate has no memory; that of traces falls with age: the first hour loses more."""
    stated = spot_hazard("aws", "p3.2xlarge", "us-east-1", "V100-16GB", BuyTerms(interruptions_per_hour=0.05))
    assert stated.lost_in_first_hour == pytest.approx(1 - exp(-0.05), rel=1e-6)
    young = other_machines()
    assert young.lost_in_first_hour > 1 - exp(-young.per_h)
