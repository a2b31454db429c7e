"""The rule of thumb for training: 40 % of the dense peak, whatever the model, batch and GPU."""

from __future__ import annotations

from rivals.cells import Answer, Row, number, training_rate
from rivals.peaks import peak_flop_per_s

TABLE = "training"
UTILISATION = 0.40


def predict(row: Row) -> Answer:
    """6N + 12·L·d·s FLOP a token (Chowdhery et al. 2022, arXiv:2204.02311, appendix B); recomputation not counted."""
    layers, width, length = (number(row, name) for name in ("n_layers", "d_model", "seq_len"))
    flop_per_token = 6 * number(row, "params") + 12 * layers * width * length
    rate = UTILISATION * peak_flop_per_s(row["gpu"], row["precision"]) / flop_per_token
    return training_rate(row, rate), ""
