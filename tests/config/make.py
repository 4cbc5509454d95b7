"""Writes kernels/plan/src/config/fields.txt: `python tests/config/make.py`, with transformers 5.17.

A row a field: class (* for all), field, default, whether the class takes null, another value, and how Precast treats that. The last
column is a person's, and is kept; a new field has a ? there, which the test refuses.
"""

import dataclasses
import json
import logging
import pathlib

import transformers
from transformers import (
    Gemma3TextConfig, GenerationConfig, GraniteConfig, GraniteMoeHybridConfig, LlamaConfig, Ministral3Config, MinistralConfig, MistralConfig, Olmo2Config, Olmo3Config,
    PreTrainedConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig, SmolLM3Config,
)
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig

logging.disable(logging.WARNING)
assert transformers.__version__.startswith("5.17."), transformers.__version__
PATH = pathlib.Path(__file__).parents[2] / "kernels/plan/src/config/fields.txt"
CLASSES = [LlamaConfig, Qwen2Config, Qwen3Config, MistralConfig, MinistralConfig, Ministral3Config, SmolLM3Config, GraniteConfig,
           GraniteMoeHybridConfig, Olmo2Config, Olmo3Config, Gemma3TextConfig, Qwen3_5TextConfig, Qwen3MoeConfig, Qwen3_5MoeTextConfig]
HEAD = "# Fields of transformers 5.17's configurations, as tests/config/make.py writes them: class, field, default, null, another, treatment"

# What PreTrainedConfig.__post_init__ and from_pretrained read without a field of the dataclass, each with another value than none.
BESIDE = {
    "model_type": "mixtral", "torch_dtype": "float16", "num_labels": 3, "name_or_path": "a/b", "output_attentions": True,
    "attn_implementation": "eager", "experts_implementation": "eager", "rope_theta": 300000.0,
    "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "partial_rotary_factor": 0.5,
    "per_layer_config": {"1": {"intermediate_size": 64}}, "quantization_config": {"quant_method": "gptq"},
    "transformers_weights": "other.safetensors", "is_causal": False, "attention_chunk_size": 16, "gradient_checkpointing": True,
    "tokenizer_class": "LlamaTokenizer",
}
# The same of one class, which computes with null not at all.
BESIDE_OF = {"gemma3_text": {"sliding_window_pattern": 3, "rope_local_base_freq": 5000.0},
             "qwen3_5_text": {"partial_rotary_factor": 0.5, "full_attention_interval": 2},
             "qwen3_5_moe_text": {"partial_rotary_factor": 0.5, "full_attention_interval": 2}}
# Values that tell a field from its default where a rule does not.
OTHERS = {
    "architectures": ["MixtralForCausalLM"], "dtype": "float16", "hidden_act": "gelu", "hidden_size": 1024, "num_attention_heads": 64, "head_dim": 64,
    "num_key_value_heads": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    "layer_types": ["sliding_attention"], "id2label": {"0": "A"}, "label2id": {"A": 0}, "problem_type": "regression",
    "transformers_version": "4.0.0", "sliding_window": 16, "pretraining_tp": 2, "no_rope_layers": [1] * 36, "pad_token_id": 7, "attention_dropout": 0.5,
}


YARN = {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 8.0, "original_max_position_embeddings": 8192}
# Of a class whose values have other forms.
OTHERS_OF = {"ministral": {"layer_types": ["full_attention"] * 32}, "ministral3": {
    "rope_parameters": YARN, "max_position_embeddings": 4096,
}, "olmo3": {"layer_types": ["sliding_attention"] * 32, "rope_parameters": {"full_attention": YARN}}, "gemma3_text": {
    "rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}},
    "layer_types": ["sliding_attention"] * 26, "hidden_activation": "gelu",
}, "qwen3_5_text": {"layer_types": ["full_attention"] * 32}, "qwen3_5_moe_text": {"layer_types": ["full_attention"] * 40},
    "qwen3_moe": {"head_dim": 128}, "granitemoehybrid": {"layer_types": ["mamba"] * 32, "mamba_d_head": 32, "position_embedding_type": "nope",
                                                          "time_step_limit": [0.0, 1.0]}}


def other(field, default):
    if OTHERS.get(field, default) != default:
        return OTHERS[field]
    if isinstance(default, bool):
        return not default
    return 7 if default is None else default * 2 if default else 1


def takes_null(cls, field):
    try:
        cls(**{field: None})
        return True
    except Exception:
        return False


def rows():
    shared = [field.name for field in dataclasses.fields(PreTrainedConfig)]
    for field in dataclasses.fields(PreTrainedConfig):
        yield "*", field.name, field.default, all(takes_null(cls, field.name) for cls in CLASSES), other(field.name, field.default)
    for field, value in BESIDE.items():
        # By these transformers computes or chooses, and with null not at all.
        yield "*", field, None, field not in ("model_type", "rope_theta"), value
    fields = {field.name for cls in CLASSES for field in dataclasses.fields(cls)} | set(BESIDE)
    for field, default in GenerationConfig._get_default_generation_params().items():
        if field not in fields:
            yield "*", field, default, True, other(field, default)
    for cls in CLASSES:
        for field in dataclasses.fields(cls):
            if field.name not in shared:
                value = OTHERS_OF.get(cls.model_type, {}).get(field.name) or other(field.name, field.default)
                yield cls.model_type, field.name, field.default, takes_null(cls, field.name), value
        for field, value in BESIDE_OF.get(cls.model_type, {}).items():
            yield cls.model_type, field, None, False, value
        if "head_dim" not in {field.name for field in dataclasses.fields(cls)}:
            # Qwen2Attention reads it all the same, and fails at null.
            value = OTHERS_OF.get(cls.model_type, {}).get("head_dim") or other("head_dim", None)
            yield cls.model_type, "head_dim", None, False, value


def main():
    lines = [line.split(None, 5) for line in (PATH.read_text().splitlines() if PATH.exists() else []) if not line.startswith("#")]
    known = {(name, field): treatment for name, field, _, _, _, treatment in lines}
    text = [HEAD]
    for name, field, default, null, value in rows():
        values = [json.dumps(one, separators=(",", ":")) for one in (default, value)]
        text.append(f"{name} {field} {values[0]} {'null' if null else '-'} {values[1]} {known.get((name, field), '?')}")
    PATH.write_text("\n".join(text) + "\n")


main()
