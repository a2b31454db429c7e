"""SkyPilot's optimizer over given AWS offers, in its own environment: how long it takes and what it chooses.

`python skypilot_optimizer.py < question.json > answer.json`, the question holding `offers` (rows of its `vms.csv`) and
the answer `first_s` (reading the list included), `again_s`, `chosen`. It ranks by price for one hour of work, unless a
task brings a time estimator: it does not know how long a job takes on each machine.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

VMS = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch"
)
EMPTY = {
    "aws/images.csv": "Tag,Region,OS,OSVersion,ImageId,CreationDate,BaseImageId",
    "aws/instance_quota_mapping.csv": "InstanceType,OnDemandInstanceCode,SpotInstanceCode",
}


def write_catalog(home: Path, offers: list[list[Any]]) -> None:
    """The price list where SkyPilot looks for it; a file without its checksum counts as the user's own."""
    folder = home / ".sky" / "catalogs" / "v8"
    for name, header in EMPTY.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(header + "\n")
    with (folder / "aws" / "vms.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(VMS.split(","))
        writer.writerows(offers)
    (folder / "common").mkdir(parents=True, exist_ok=True)
    names = sorted({row[1] for row in offers if row[1]})
    (folder / "common" / "accelerators.csv").write_text(
        "AcceleratorName,Clouds\n" + "".join(f"{name},AWS\n" for name in names)
    )


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Time `Optimizer.optimize` twice over every accelerator and count on offer, on-demand and spot."""
    import sky
    from sky import check, clouds, optimizer

    check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: [clouds.AWS()]
    wanted = sorted({(row[1], row[2]) for row in question["offers"] if row[1]})
    choices = {
        sky.Resources(infra="aws", accelerators={name: count}, use_spot=spot)
        for name, count in wanted
        for spot in (False, True)
    }
    seconds = []
    chosen = ""
    for _ in range(2):
        task = sky.Task(run="true")
        task.set_resources(choices)
        with sky.Dag() as dag:
            dag.add(task)
        start = perf_counter()
        optimizer.Optimizer.optimize(dag, quiet=True)
        seconds.append(perf_counter() - start)
        best = task.best_resources
        chosen = f"{best.instance_type} {'spot' if best.use_spot else 'on-demand'} {best.region or ''}".strip()
    return {"first_s": seconds[0], "again_s": seconds[1], "chosen": chosen, "version": sky.__version__}


def main() -> None:
    question = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as home, redirect_stdout(sys.stderr):
        os.environ.update(HOME=home, SKYPILOT_DISABLE_USAGE_COLLECTION="1")
        write_catalog(Path(home), question["offers"])
        result = answer(question)
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
