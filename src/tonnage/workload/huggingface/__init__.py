"""A Hugging Face `config.json` -> a model shape."""

from tonnage.workload.huggingface.config import READERS, load_huggingface_config, parse_huggingface_config

__all__ = ["READERS", "load_huggingface_config", "parse_huggingface_config"]
