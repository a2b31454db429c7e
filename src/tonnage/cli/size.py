"""`tonnage size`."""

from __future__ import annotations

from typing import Annotated

from tonnage import api
from tonnage.cli import options
from tonnage.cli.declared import opened_by
from tonnage.cli.local_device import Device, OtherMachine, refuse_beside_device, show_on_device
from tonnage.cli.session import Session
from tonnage.errors import NothingFits


def size(
    file: options.File,
    gpu: options.Gpus = None,
    top: options.Top = 30,
    device: Device = None,
    other_machine: OtherMachine = False,
    layout: options.Layout = None,
    memory_margin: options.MemoryMargin = None,
    *,
    session: Annotated[Session, opened_by("calibration", "catalog", "as_of", "output", "quiet")],
) -> None:
    """Show what the workload needs (memory, FLOPs, time) and the fewest of each GPU that hold it, without prices.

    With --gpu every machine with that GPU is listed; with --device a training job on a device that
    `tonnage calibrate --local` measured. Exit code 3: nothing holds it.
    """
    if device is not None:
        refuse_beside_device({"--gpu": gpu, "--layout": layout})
        show_on_device(session, file, device, memory_margin=memory_margin, other_machine=other_machine)
        return
    with session.progress("sizing"):
        from tonnage.reports.size import size_report

        result = api.size(
            file, gpus=tuple(gpu or ()), layout=layout, memory_margin=memory_margin, top=top, settings=session.settings
        )
    session.show(size_report(result.size, top=top, every_row=result.every_row))
    if not result.size.rows:
        raise NothingFits(
            f"no machine in the catalog holds {result.size.name}",
            hint="the report names each limit; see `tonnage plan`"
            if result.size.misses
            else "name another GPU: `tonnage catalog instances` lists machines with theirs, and prices",
        )
