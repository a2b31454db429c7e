"""Steps that follow one another: prepare, train, evaluate, register, predict. Dagster runs them in turn."""

from tonnage.pipelines.pipeline import Pipeline, PipelineStep
from tonnage.pipelines.reading import load_pipeline

__all__ = ["Pipeline", "PipelineStep", "load_pipeline"]
