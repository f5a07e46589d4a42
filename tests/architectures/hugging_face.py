"""Networks of transformers as they are, from small random configurations: nothing is downloaded."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import peft
import transformers as hf
from torch import nn

from architectures.architecture import (
    CLASSES,
    COUPLED,
    LENGTH,
    SIDE,
    WORDS,
    Architecture,
    classes,
    ids,
    mask,
    numbers,
    pictures,
)
from sfumato.central import language_model_loss, multi_label_loss, token_loss

_SMALL: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
_PICTURE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": SIDE,
    "patch_size": 8,
}


def _built(kind: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    """A network by the names of its class and of its configuration's."""
    return lambda: getattr(hf, kind)(getattr(hf, config)(**settings))


def _adapted(build: Callable[[], nn.Module], *targets: str) -> Callable[[], nn.Module]:
    """A network of which only LoRA's matrices beside some layers are trained, and its head."""
    settings = peft.LoraConfig(r=2, lora_dropout=0.1, target_modules=list(targets), modules_to_save=None)
    return lambda: peft.get_peft_model(build(), settings)


def _text(
    name: str, kind: str, config: str, *, masked: bool = True, refused: str = "", **settings: Any
) -> Architecture:
    """A classifier of texts."""
    build = _built(kind, config, **{**_SMALL, "num_labels": CLASSES, **settings})
    inputs = (ids(), mask()) if masked else (ids(),)
    return Architecture(name=name, build=build, inputs=inputs, targets=classes(), refused=refused)


def _language(name: str, kind: str, config: str, *, refused: str = "", **settings: Any) -> Architecture:
    """A language model: the words themselves are the targets, those behind a document's end do not count."""
    build = _built(kind, config, **{**_SMALL, **settings})
    words = ids()
    targets = np.where(mask() == 1, words, -100)
    return Architecture(
        name=name,
        build=build,
        inputs=(words,),
        targets=targets,
        loss=language_model_loss,
        task="own",
        refused=refused,
    )


def _picture(name: str, kind: str, config: str, *, refused: str = "", **settings: Any) -> Architecture:
    """A classifier of pictures."""
    build = _built(kind, config, num_labels=CLASSES, **settings)
    return Architecture(name=name, build=build, inputs=(pictures(),), targets=classes(), refused=refused)


def _sequence(name: str, kind: str, config: str, **settings: Any) -> Architecture:
    """From one text to another: the decoder reads what it shall say, one place later."""
    said = ids(shift=1)
    read = np.concatenate([np.zeros((len(said), 1), np.int64), said], axis=1)
    return Architecture(
        name=name,
        build=_built(kind, config, **settings),
        inputs=(ids(), mask(), read),
        targets=np.concatenate([np.full((len(said), 1), -100), said], axis=1),
        loss=language_model_loss,
        task="own",
    )


def _with_lora(one: Architecture, *targets: str) -> Architecture:
    return replace(one, name=f"{one.name}, LoRA", build=_adapted(one.build, *targets))


_GPT2: dict[str, Any] = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16, "n_inner": 24}
_DEBERTA: dict[str, Any] = {
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "max_relative_positions": 8,
    "position_buckets": 4,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
}
_KV: dict[str, Any] = {"num_key_value_heads": 1, "head_dim": 8}

_AS_THEY_ARE = (
    _text("BERT", "BertForSequenceClassification", "BertConfig"),
    Architecture(
        name="BERT, several labels",
        build=_built(
            "BertForSequenceClassification",
            "BertConfig",
            **_SMALL,
            num_labels=CLASSES,
            problem_type="multi_label_classification",
        ),
        inputs=(ids(), mask()),
        targets=(numbers(CLASSES) > 0).astype(np.int64),
        loss=multi_label_loss,
        task="own",
    ),
    Architecture(
        name="BERT, words at gaps",
        build=_built("BertForMaskedLM", "BertConfig", **_SMALL),
        inputs=(ids(), mask()),
        targets=np.where(np.arange(LENGTH) % 3 == 0, ids(shift=1), -100),
        loss=token_loss,
        task="own",
    ),
    _text(
        "DistilBERT",
        "DistilBertForSequenceClassification",
        "DistilBertConfig",
        dim=16,
        n_heads=2,
        n_layers=2,
        hidden_dim=24,
    ),
    _text("RoBERTa", "RobertaForSequenceClassification", "RobertaConfig"),
    _text("ALBERT (shared layers)", "AlbertForSequenceClassification", "AlbertConfig", embedding_size=8),
    _text("ELECTRA", "ElectraForSequenceClassification", "ElectraConfig", embedding_size=8),
    _text(
        "DeBERTa-v2", "DebertaV2ForSequenceClassification", "DebertaV2Config", **_DEBERTA, refused="is shared by the"
    ),
    _text("MPNet", "MPNetForSequenceClassification", "MPNetConfig"),
    _text("GPT-2 classifier", "GPT2ForSequenceClassification", "GPT2Config", masked=False, **_GPT2),
    _language("GPT-2", "GPT2LMHeadModel", "GPT2Config", **_GPT2),
    _language(
        "GPT-Neo",
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        num_layers=2,
        num_heads=2,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
    ),
    _language("OPT", "OPTForCausalLM", "OPTConfig", ffn_dim=24, word_embed_proj_dim=16),
    _language("BLOOM", "BloomForCausalLM", "BloomConfig", n_layer=2, n_head=2),
    _language("Llama", "LlamaForCausalLM", "LlamaConfig", **_KV),
    _language("Mistral", "MistralForCausalLM", "MistralConfig", **_KV, sliding_window=4),
    _language("Qwen2", "Qwen2ForCausalLM", "Qwen2Config", **_KV, tie_word_embeddings=True),
    _language("Qwen3", "Qwen3ForCausalLM", "Qwen3Config", **_KV),
    _language("Gemma", "GemmaForCausalLM", "GemmaConfig", **_KV),
    _language("Phi-3", "Phi3ForCausalLM", "Phi3Config", num_key_value_heads=2),
    _language("Mamba", "MambaForCausalLM", "MambaConfig", state_size=4, refused="outside the forward pass"),
    _sequence(
        "T5",
        "T5ForConditionalGeneration",
        "T5Config",
        vocab_size=WORDS,
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
    ),
    _sequence(
        "BART",
        "BartForConditionalGeneration",
        "BartConfig",
        vocab_size=WORDS,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=0,
        forced_eos_token_id=1,
    ),
    _picture("ViT", "ViTForImageClassification", "ViTConfig", **_PICTURE),
    _picture("DeiT", "DeiTForImageClassification", "DeiTConfig", **_PICTURE),
    _picture("BEiT", "BeitForImageClassification", "BeitConfig", **_PICTURE),
    _picture(
        "Swin",
        "SwinForImageClassification",
        "SwinConfig",
        image_size=SIDE,
        patch_size=2,
        embed_dim=8,
        depths=[1, 1],
        num_heads=[1, 2],
        window_size=4,
    ),
    _picture(
        "ConvNeXt",
        "ConvNextForImageClassification",
        "ConvNextConfig",
        hidden_sizes=[8, 16],
        depths=[1, 1],
        num_stages=2,
        patch_size=4,
        image_size=SIDE,
    ),
    _picture(
        "ResNet (batch norm)",
        "ResNetForImageClassification",
        "ResNetConfig",
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        refused=COUPLED,
    ),
    _picture(
        "CLIP's picture tower", "CLIPForImageClassification", "CLIPConfig", vision_config=_PICTURE, text_config=_SMALL
    ),
    Architecture(
        name="wav2vec 2.0",
        build=_built(
            "Wav2Vec2ForSequenceClassification",
            "Wav2Vec2Config",
            **{**_SMALL, "num_labels": CLASSES},
            conv_dim=(8, 8),
            conv_stride=(4, 2),
            conv_kernel=(8, 4),
            num_feat_extract_layers=2,
            num_conv_pos_embeddings=4,
            num_conv_pos_embedding_groups=2,
            classifier_proj_size=8,
            apply_spec_augment=False,
            layerdrop=0.0,
        ),
        inputs=(numbers(128),),
        targets=classes(),
    ),
)
_BY_NAME = {each.name: each for each in _AS_THEY_ARE}

ARCHITECTURES = (
    *_AS_THEY_ARE,
    _with_lora(_BY_NAME["BERT"], "query", "value"),
    _with_lora(_BY_NAME["GPT-2"], "c_attn"),
    _with_lora(_BY_NAME["Llama"], "q_proj", "v_proj"),
    _with_lora(_BY_NAME["T5"], "q", "v"),
)
"""In the order of the table."""
