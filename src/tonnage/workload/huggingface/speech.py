"""Reader of Whisper: a speech encoder behind two convolutions, and a text decoder."""

from __future__ import annotations

from typing import Any, Final

from tonnage.workload.huggingface.reader import ConfigReader

NOT_MODELLED: Final = (
    "the decoder of a speech model starts from a few tokens while its encoder reads 1,500 frames: "
    "work that differs so on the two sides is not modelled"
)


def read_whisper(config: ConfigReader) -> dict[str, Any]:
    """Whisper: positions of the encoder are stored too, keys have no bias."""
    width, bins = config.integer("d_model"), config.integer("num_mel_bins")
    heads, frames = config.integer("decoder_attention_heads"), config.integer("max_source_positions")
    ffn, positions = config.integer("decoder_ffn_dim"), config.integer("max_target_positions")
    for key, expected in (("encoder_attention_heads", heads), ("encoder_ffn_dim", ffn)):
        if config.integer(key) != expected:
            raise config.error(key, f"{config.integer(key)} differs from the decoder's {expected}: not supported")
    return {
        "layers": config.integer("decoder_layers"),
        "encoder_layers": config.integer("encoder_layers"),
        "hidden": width,
        "heads": heads,
        "head_dim": config.divided("d_model", "decoder_attention_heads", heads),
        "ffn": ffn,
        "vocab": config.integer("vocab_size"),
        "max_positions": positions,
        "tied_embeddings": config.flag("tie_word_embeddings"),
        "extra_parameters": (frames - positions + 3 * bins + 3 * width + 2) * width,
        "notes": "extra parameters: two convolutions over the spectrogram, further rows of the encoder's positions",
        "not_modelled": NOT_MODELLED,
    }
