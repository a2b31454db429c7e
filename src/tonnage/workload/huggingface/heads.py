"""Which heads a checkpoint carries: read from `architectures`, the class that saved it."""

from __future__ import annotations

from typing import Any

from tonnage.workload.huggingface.reader import ConfigReader, shown

_GENERATIVE = (
    "ForCausalLM",
    "LMHeadModel",
    "ForConditionalGeneration",
    "WithLMHeadModel",
    "DoubleHeadsModel",
)
_LABELLED = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
_UNPOOLED = ("distilbert", "electra", "deberta", "deberta-v2")  # their bare model has no dense layer on top


def encoder_heads(config: ConfigReader, model_type: str) -> dict[str, Any]:
    """Fields for the heads of a BERT-like encoder; no `architectures` means the bare model (AutoModel)."""
    saved_by = _saved_by(config)
    if saved_by.endswith("ForMaskedLM"):
        return {"pooler": False, **_masked_lm()}
    if saved_by.endswith("ForPreTraining"):
        if model_type == "electra":  # the discriminator: a dense layer and one output
            return {"pooler": True, "classes": 1}
        return {"pooler": True, "classes": 2, **_masked_lm()}
    if saved_by.endswith("ForSequenceClassification"):
        return {"pooler": True, "classes": label_count(config)}
    if saved_by.endswith(("ForTokenClassification", "ForQuestionAnswering")):
        return {"pooler": False, "classes": label_count(config)}
    if saved_by.endswith("ForMultipleChoice"):
        return {"pooler": True, "classes": 1}
    if saved_by == "" or saved_by.endswith("Model"):
        return {"pooler": model_type not in _UNPOOLED}
    raise _unknown(config, saved_by)


def modernbert_heads(config: ConfigReader, hidden: int) -> dict[str, Any]:
    """Fields for the heads of ModernBERT: a dense layer and a norm in front of words or labels."""
    saved_by = _saved_by(config)
    if saved_by == "" or saved_by.endswith("Model"):
        return {}
    dense = hidden * (hidden + config.flag("classifier_bias") + 1 + config.flag("norm_bias"))
    head = {"extra_parameters": dense, "notes": "extra parameters: the dense layer and norm of the head"}
    if saved_by.endswith("ForMaskedLM"):
        tied = config.flag("tie_word_embeddings")
        return {**head, "lm_head": True, "lm_head_bias": config.flag("decoder_bias"), "tied_embeddings": tied}
    if saved_by.endswith(_LABELLED):
        return {**head, "classes": label_count(config)}
    raise _unknown(config, saved_by)


def decoder_heads(config: ConfigReader, hidden: int) -> dict[str, Any]:
    """Fields for the head of a generative model; no `architectures` means with its vocabulary projection."""
    saved_by = _saved_by(config)
    if saved_by == "" or saved_by.endswith(_GENERATIVE):
        return {"lm_head": True}
    if saved_by.endswith(_LABELLED):  # one matrix without bias over the last hidden state
        labels = label_count(config)
        return {"lm_head": False, "lm_head_bias": False, "extra_parameters": hidden * labels} | {
            "notes": f"extra parameters: classification layer without bias, {labels} labels"
        }
    if saved_by.endswith("Model"):
        return {"lm_head": False, "lm_head_bias": False}
    raise _unknown(config, saved_by)


def vision_heads(config: ConfigReader) -> dict[str, Any]:
    """Fields for the head of an image model; no `architectures` means the bare model with its pooler."""
    saved_by = _saved_by(config)
    if saved_by.endswith(("ForImageClassification", "ForImageClassificationWithTeacher")):
        return {"pooler": False, "classes": label_count(config)}
    if saved_by == "" or saved_by.endswith("Model"):
        return {"pooler": True}
    raise _unknown(config, saved_by)


def two_classifiers(config: ConfigReader) -> bool:
    """Whether it is a distilled DeiT with a second classification layer for the teacher."""
    return _saved_by(config).endswith("ForImageClassificationWithTeacher")


def is_encoder_only(config: ConfigReader) -> bool:
    """Whether only the encoder half of an encoder-decoder was saved (`T5EncoderModel`)."""
    return _saved_by(config).endswith("EncoderModel")


def label_count(config: ConfigReader) -> int:
    """Outputs of a classifier: `id2label`, else `num_labels`, else the 2 that transformers assumes."""
    if config.has("id2label"):
        labels = config.get("id2label")
        if not isinstance(labels, dict) or not labels:
            raise config.error("id2label", "is not an object with at least one label")
        return len(labels)
    return config.integer("num_labels") if config.has("num_labels") else 2


def _masked_lm() -> dict[str, Any]:
    return {"lm_head": True, "lm_head_bias": True, "mlm_transform": True}


def _saved_by(config: ConfigReader) -> str:
    if not config.has("architectures"):
        return ""
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not all(isinstance(entry, str) for entry in architectures):
        raise config.error("architectures", "is not a list of class names")
    return architectures[0] if architectures else ""


def _unknown(config: ConfigReader, saved_by: str) -> Exception:
    return config.error(
        "architectures",
        f"{shown(saved_by)} is not a class whose heads are known here",
        "name the plain class (…Model, …ForCausalLM, …ForSequenceClassification) or give an inline shape",
    )
