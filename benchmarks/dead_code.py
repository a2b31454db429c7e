"""Functions, methods, properties and classes of `src` that nothing but a test names. Exit 1 where one is not allowed.

    python benchmarks/dead_code.py

Run by `make lint`. Fields of values are left out: they are read by name when a value is written as JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).parents[1]
KINDS = {"class", "function", "method", "property", "unreachable_code"}
CALLED = ["@app.command*", "@*.command*", "@*.callback*", "@*_validator", "@*_serializer"]  # by typer and pydantic
ALLOWED = {
    "called by Python or a library by name": [
        "__getattr__", "__dir__", "_repr_html_", "_load_pyfunc", "log_message", "do_HEAD", "on_step_end",
        "on_files", "on_page_markdown",
        "_one_test", "decode_request", "unbatch", "encode_response", "connection_made", "data_received",
        "connection_lost", "on_url", "on_header", "on_headers_complete", "on_message_complete", "on_message_begin",
        "do_POST", "do_PUT", "do_PATCH", "do_DELETE", "ignore_aliases",
        "pause_writing", "readable", "seekable", "readinto", "get_next", "admit", "after_iteration",
    ],
    "offered to users of the package": [
        "to_csv", "to_markdown", "to_frame", "fake_profile", "write_tiny_*", "PlaceTrial", "new_host_key",
        "fake_batch", "fake_bedrock", "fake_cluster", "fake_sagemaker", "fake_ec2", "fake_workspace", "fake_google",
        "environ", "vanish", "lose", "read_scenarios", "ray_cluster", "lose_node", "shut_down", "node_of",
        "fake_dashboard", "fake_skypilot", "fake_digitalocean", "fake_azure", "azurite", "preempt", "elsewhere",
        "evict", "wait_for_pod", "fake_vault", "worker_of", "fake_master",
    ],
    "commands added to typer without a decorator": [
        "breakeven", "skypilot", "doctor", "mcp", "ps", "list_runs", "compare_runs", "reindex", "import_rows",
    ],
    "found by their name in a text: `ENGINES` of engine_workers, columns of a table of memory, measures of criteria": [
        "ScikitLearnEngine", "LightGBMEngine", "CatBoostEngine", "PyTorchFSDPEngine", "AloneAutoML", "SparklingAutoML",
        "SparkMLEngine", "RayXGBoostEngine", "RayPyTorchEngine", "allocated_bytes", "reserved_bytes",
        "throughput_per_s",
    ],
    "what tests alone ask: to be moved to them, or used": ["add_plan", "parse_profiles"],
}  # fmt: skip


def main() -> int:
    vulture = Vulture(ignore_names=[name for names in ALLOWED.values() for name in names], ignore_decorators=CALLED)
    vulture.scavenge([str(ROOT / folder) for folder in ("src", "benchmarks", "docs")])
    dead = [one for one in vulture.get_unused_code(min_confidence=60) if one.typ in KINDS]
    for one in dead:
        print(f"{Path(one.filename).relative_to(ROOT)}:{one.first_lineno}: nothing uses the {one.typ} {one.name}")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
