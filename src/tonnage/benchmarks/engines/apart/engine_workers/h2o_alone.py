"""H2O in a Java process of its own, on the loopback address."""

from __future__ import annotations

import os
from typing import Any

from .h2o_models import H2OEngine
from .process import descendants


class H2OAloneEngine(H2OEngine):
    packages = ("h2o",)

    def start(self) -> None:
        import h2o

        self._h2o: Any = h2o
        h2o.init(ip="127.0.0.1", port=self.job["ports"][0], nthreads=self.job["threads"], bind_to_localhost=True,
                 max_mem_size=f"{int(self.job['memory_gib'] * 1024)}M", ice_root=self.job["folder"],
                 log_dir=self.job["folder"], start_h2o=True)  # fmt: skip
        h2o.no_progress()

    def prepare(self, table: Any) -> None:
        self.table = table
        self._h2o.remove_all()
        self.frames = {part: self._h2o.H2OFrame(self.pandas_frame(part)) for part in table.target}
        if self.job["task"] != "regression":
            for frame in self.frames.values():
                frame["target"] = frame["target"].asfactor()

    def workers(self) -> list[dict[str, Any]]:
        port, devices = self.job["ports"][0], os.environ.get("CUDA_VISIBLE_DEVICES")
        return [{"rank": 0, "pid": pid, "port": port, "devices": devices} for pid in descendants(os.getpid())]

    def close(self) -> None:
        self._h2o.cluster().shutdown()
