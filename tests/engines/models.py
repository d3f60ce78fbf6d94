#!/usr/bin/env python3
"""Makes small models with seeded random weights, in the form that engines load.

    models.py FOLDER [--preset NAME] [--seed N]

Weights have a standard deviation of about 0.1: with those of `--load-format dummy` (1e-3) attention hardly matters, a wrong
block of KV changes no token, and a test that compares tokens proves nothing.
"""

import argparse
import json
import pathlib

PRESETS = {
    # The figures' model: 16 KiB of float32 KV a token.
    "llama": {
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "num_hidden_layers": 8,
        "intermediate_size": 1408,
        "vocab_size": 2048,
        "max_position_embeddings": 8192,
    },
    # For correctness: 2 KiB a token, starts and runs in no time.
    "tiny": {
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_hidden_layers": 4,
        "intermediate_size": 256,
        "vocab_size": 512,
        "max_position_embeddings": 2048,
    },
}
# Every second layer sees a window of 128 tokens.
PRESETS["windowed"] = {
    **PRESETS["tiny"],
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}


def configuration(preset):
    shape = PRESETS[preset]
    common = {
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        **shape,
    }
    if preset == "windowed":
        return {
            "architectures": ["Gemma3ForCausalLM"],
            "model_type": "gemma3_text",
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": shape["head_dim"],
            "rope_local_base_freq": 10000.0,
            **common,
            "tie_word_embeddings": True,
        }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "mlp_bias": False,
        **common,
    }


def tensors(config, seed, deviation):
    import torch

    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator) * deviation

    gemma = config["model_type"] == "gemma3_text"  # its norms multiply by 1 + weight
    hidden, head, inner = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    norm = torch.zeros if gemma else torch.ones
    made = {"model.embed_tokens.weight": normal(config["vocab_size"], hidden), "model.norm.weight": norm(hidden)}
    if not config["tie_word_embeddings"]:
        made["lm_head.weight"] = normal(config["vocab_size"], hidden)
    norms = ["input_layernorm", "post_attention_layernorm"]
    norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if gemma else []
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads"), ("v", "num_key_value_heads")):
            made[f"{at}self_attn.{name}_proj.weight"] = normal(config[heads] * head, hidden)
        made[f"{at}self_attn.o_proj.weight"] = normal(hidden, config["num_attention_heads"] * head)
        made[f"{at}mlp.gate_proj.weight"] = normal(inner, hidden)
        made[f"{at}mlp.up_proj.weight"] = normal(inner, hidden)
        made[f"{at}mlp.down_proj.weight"] = normal(hidden, inner)
        made.update({f"{at}{name}.weight": norm(hidden) for name in norms})
        if gemma:
            made.update({f"{at}self_attn.{name}_norm.weight": norm(head) for name in ("q", "k")})
    return made


def tokenizer(folder, vocabulary):
    """A word a token: "w17" is 17."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"w{at}": at for at in range(3, vocabulary)}}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def make(folder, preset="llama", seed=7, deviation=0.1):
    """Writes config.json and model.safetensors; the same bytes for the same arguments."""
    from safetensors.torch import save_file

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = configuration(preset)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    tokenizer(folder, config["vocab_size"])
    save_file(tensors(config, seed, deviation), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def make_lora(folder, model, seed, rank=8):
    """An adapter of the model in folder `model` that changes what its attention sees."""
    import torch
    from safetensors.torch import save_file

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for layer in range(config["num_hidden_layers"]):
        for name, heads in (("q", "num_attention_heads"), ("v", "num_key_value_heads")):
            at = f"base_model.model.model.layers.{layer}.self_attn.{name}_proj."
            made[at + "lora_A.weight"] = torch.randn(rank, config["hidden_size"], generator=generator) * 0.3
            made[at + "lora_B.weight"] = torch.randn(config[heads] * config["head_dim"], rank, generator=generator) * 0.3
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "",
        "r": rank,
        "lora_alpha": 2 * rank,
        "bias": "none",
        "target_modules": ["q_proj", "v_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    save_file(made, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--preset", choices=PRESETS, default="llama")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    print(make(arguments.folder, arguments.preset, arguments.seed))
