"""The package vidur: a simulator of decoder serving over profiled operators.

Its wheel holds no profile. `available` asks for the table that its default predictor needs, and says why if it fails.
"""

from __future__ import annotations

from rivals.cells import Answer, Declined, Row

TABLE = "inference"
MODELS = {"llama2-7b": "meta-llama/Llama-2-7b-hf", "llama2-70b": "meta-llama/Llama-2-70b-hf",
          "llama3-8b": "meta-llama/Meta-Llama-3-8B", "llama3-70b": "meta-llama/Meta-Llama-3-70B"}  # fmt: skip


def available() -> str:
    """Empty where vidur can run here, else why not."""
    from huggingface_hub import snapshot_download
    from vidur.config.config import RandomForrestExecutionTimePredictorConfig

    asked = RandomForrestExecutionTimePredictorConfig()
    try:
        snapshot_download(asked.model_profiling_dataset, repo_type="dataset", local_files_only=True)
    except Exception as error:
        return (
            "its package holds no profiling tables and fetches them from a hub that is not reached from here "
            f"({type(error).__name__}); its older packages (0.0.1, 0.0.2, 0.0.9) hold none either, and the tables in "
            "its public repository lack those of attention for the models in question"
        )
    return ""


def predict(row: Row) -> Answer:
    """Not asked where `available` says no."""
    raise Declined("model not profiled" if row["model"] not in MODELS else available())
