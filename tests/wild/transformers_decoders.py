"""A Llama and a GPT-2 of transformers, random and tiny, with a cache: for `tracer export`."""

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

WORDS, WIDTH, FFN, LAYERS, SIZE, POSITIONS = 50, 32, 80, 2, 8, 64


class Cached(torch.nn.Module):
    """A decoder that takes its cache as tensors and returns it longer.

    Positions and the mask follow from the lengths, so a prompt has no padding.
    """

    def __init__(self, model, groups):
        super().__init__()
        self.model, self.groups = model.eval(), groups

    @property
    def input_shape(self):
        return ((4,), *[(self.groups, 3, SIZE)] * (2 * LAYERS))

    @property
    def input_dtype(self):
        return ("int64", *["float32"] * (2 * LAYERS))

    @property
    def tensor_names(self):
        parts = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
        inputs = ("input_ids", *(f"past_key_values.{part}" for part in parts))
        return inputs, ("logits", *(f"present.{part}" for part in parts))

    @property
    def dynamic_axes(self):
        return ({1: "sequence"}, *[{2: "past"}] * (2 * LAYERS))

    def forward(self, input_ids, *past):
        cache = DynamicCache()
        for layer in range(LAYERS):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        before, new = past[0].shape[2], input_ids.shape[1]
        keys, places = torch.arange(before + new), torch.arange(before, before + new)
        hidden = torch.finfo(torch.float32).min
        mask = torch.where(keys[None] <= places[:, None], 0.0, hidden)[None, None]
        done = self.model(
            input_ids, attention_mask=mask, position_ids=places[None], past_key_values=cache,
            use_cache=True,
        )  # fmt: skip
        layers = done.past_key_values.layers
        return done.logits, *(tensor for each in layers for tensor in (each.keys, each.values))


def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, head_dim=SIZE,
        max_position_embeddings=POSITIONS, attn_implementation="eager",
    )  # fmt: skip
    return Cached(LlamaForCausalLM(config), 2)


def gpt2():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=WORDS, n_positions=POSITIONS, n_embd=WIDTH, n_layer=LAYERS, n_head=4,
        n_inner=FFN, bos_token_id=0, eos_token_id=0, attn_implementation="eager",
    )  # fmt: skip
    return Cached(GPT2LMHeadModel(config), 4)
