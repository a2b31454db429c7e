"""Results of benches as values: the bench file, the measured cells of several engines, their summary and comparison.

It measures nothing and imports no engine: `tonnage.benchmarks` measures, and its adapters return these values.
"""
