"""The package vidur: a simulator of decoder serving over profiled operators.

Its package holds no profile of any operator, without which it predicts nothing. `available` says what is missing.
"""

from __future__ import annotations

from rivals.cells import Answer, Declined, Row

TABLE = "inference"
GPUS = ("A100-80GB-SXM", "H100-80GB-SXM")
MODELS = {"llama2-7b": "meta-llama/Llama-2-7b-hf", "llama2-70b": "meta-llama/Llama-2-70b-hf",
          "llama3-8b": "meta-llama/Meta-Llama-3-8B", "llama3-70b": "meta-llama/Meta-Llama-3-70B"}  # fmt: skip


def check(row: Row) -> None:
    """Declined unless the model is one it has profiled."""
    if row["model"] not in MODELS or row["gpu"] not in GPUS:
        raise Declined("model or GPU not profiled")


def available() -> str:
    """Empty where the profiling tables are at hand, else why not."""
    from huggingface_hub import snapshot_download
    from vidur.config.config import RandomForrestExecutionTimePredictorConfig

    asked = RandomForrestExecutionTimePredictorConfig()
    try:
        snapshot_download(asked.model_profiling_dataset, repo_type="dataset", local_files_only=True)
    except Exception as error:
        return (
            f"its simulator starts but has no profiling tables ({type(error).__name__}). Tried: the default of package "
            "0.0.26, which fetches them from a hub not reached from here; the packages 0.0.1, 0.0.2 and 0.0.9, which "
            "hold none; a clone of its repository, not reached from here either"
        )
    return "its tables are at hand, but how it is asked is not written yet: see benchmarks/rivals/vidur_package.py"


def predict(row: Row) -> Answer:
    """Nothing: `available` always has a reason."""
    raise Declined(f"not asked about {row['id']}")
