"""Small random networks as people bring them: those of transformers and those of torch, each with tiny records."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import peft
import torch
import transformers as hf
from torch import Tensor, nn

from sfumato.central import DPSGD, cross_entropy, language_model_loss, multi_label_loss, squared_error, token_loss
from sfumato.data import ExampleDataset, to_tensor

# A network, tiny records for it, and the loss that it is trained by.

COUPLED = "BatchNorm2d couples the examples"
EXAMPLES, WORDS, LENGTH, CLASSES, SIDE = 8, 32, 6, 3, 16


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How a network is built and tried.

    Attributes:
        name: as the table shows it.
        build: gives the network, from torch's generator as it stands.
        inputs: of `EXAMPLES` records, one array for each argument of the network.
        targets: of the records.
        loss: one number an example.
        task: of DP-SGD.
        library: where it comes from.
        refused: words of the refusal of a network that no bound holds for as it is; empty for all others.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[np.ndarray, ...]
    targets: np.ndarray
    loss: Callable[[Any, Any], Tensor] = cross_entropy
    task: Literal["classes", "regression", "counts", "own"] = "classes"
    library: Literal["transformers", "torch"] = "transformers"
    refused: str = ""

    def model(self) -> nn.Module:
        """The network, always the same; in training mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.build().train()

    def data(self) -> ExampleDataset:
        """The records."""
        classes = CLASSES if self.task == "classes" else None
        return ExampleDataset(inputs=self.inputs, targets=self.targets, num_classes=classes)

    def batch(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """All records as the network and the loss get them."""
        inputs, targets = self.data().examples(np.arange(EXAMPLES))
        return tuple(to_tensor(each) for each in inputs), torch.from_numpy(targets)

    def losses(self, model: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """One number an example."""
        return self.loss(model(*inputs), targets)

    def plan(self) -> DPSGD:
        """Two steps."""
        return DPSGD(task=self.task, steps=2, cohort=4, noise=1.0, clipping=1.0, seed=1)


def ids(length: int = LENGTH, *, shift: int = 0) -> np.ndarray:
    """Numbers of words, int64 [examples, length]; 0 and 1 are not among them."""
    return np.random.default_rng(1 + shift).integers(2, WORDS, (EXAMPLES, length))


def mask(length: int = LENGTH) -> np.ndarray:
    """Which words are there, of documents of several lengths, int64 [examples, length]."""
    lengths = 2 + np.arange(EXAMPLES) % (length - 1)
    return (np.arange(length) < lengths[:, None]).astype(np.int64)


def pictures(channels: int = 3) -> np.ndarray:
    """uint8 [examples, side, side, channels]."""
    return np.random.default_rng(2).integers(0, 256, (EXAMPLES, SIDE, SIDE, channels), np.uint8)


def numbers(*shape: int) -> np.ndarray:
    """float32 [examples, *shape]."""
    return np.random.default_rng(3).standard_normal((EXAMPLES, *shape)).astype(np.float32)


def classes() -> np.ndarray:
    """int64 [examples]."""
    return np.arange(EXAMPLES) % CLASSES


# Networks of transformers as they are, from small random configurations: nothing is downloaded.

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
    _language("Mamba", "MambaForCausalLM", "MambaConfig", state_size=4, refused="outside its layer's forward pass"),
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

TRANSFORMERS = (
    *_AS_THEY_ARE,
    _with_lora(_BY_NAME["BERT"], "query", "value"),
    _with_lora(_BY_NAME["GPT-2"], "c_attn"),
    _with_lora(_BY_NAME["Llama"], "q_proj", "v_proj"),
    _with_lora(_BY_NAME["T5"], "q", "v"),
)
"""In the order of the table."""


# Networks of torch's own layers.

_WIDTH = 8


class _Mean(nn.Module):
    """The mean over time."""

    def forward(self, values: Tensor) -> Tensor:
        return values.mean(dim=1)


class _Outputs(nn.Module):
    """What a recurrent layer gives at each time."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(values)[0]


class _Seq2Seq(nn.Module):
    """`nn.Transformer` from one text to another, whose mean is classified; positions are looked up by arange."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, _WIDTH), nn.Embedding(LENGTH, _WIDTH)
        self.transformer = nn.Transformer(_WIDTH, 2, 1, 1, 2 * _WIDTH, batch_first=True)
        self.head = nn.Linear(_WIDTH, CLASSES)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        places = self.places(torch.arange(source.shape[1], device=source.device))
        mixed = self.transformer(self.words(source) + places, self.words(target) + places)
        return self.head(mixed.mean(dim=1))


class _TiedAutoencoder(nn.Module):
    """The decoder is the encoder's weight again."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
        self.decode.weight = self.encode.weight

    def forward(self, values: Tensor) -> Tensor:
        return self.decode(self.encode(values).tanh())


def _recurrent(kind: Any) -> nn.Module:
    return nn.Sequential(
        nn.Embedding(WORDS, _WIDTH),
        _Outputs(kind(_WIDTH, _WIDTH, batch_first=True)),
        _Mean(),
        nn.Linear(_WIDTH, CLASSES),
    )


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(_WIDTH, 2, 2 * _WIDTH, batch_first=True)
    return nn.Sequential(
        nn.Embedding(WORDS, _WIDTH), nn.TransformerEncoder(layer, 2), _Mean(), nn.Linear(_WIDTH, CLASSES)
    )


def _cnn(norm: type[nn.Module]) -> nn.Module:
    flat = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * _WIDTH, CLASSES))
    return nn.Sequential(nn.Conv2d(3, _WIDTH, 3, padding=1), norm(_WIDTH), nn.ReLU(), nn.MaxPool2d(2), flat)


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(4, channels)


def _texts(name: str, build: Any, **more: Any) -> Architecture:
    return Architecture(name=name, library="torch", build=build, inputs=(ids(),), targets=classes(), **more)


def _pictures(name: str, build: Any, **more: Any) -> Architecture:
    return Architecture(name=name, library="torch", build=build, inputs=(pictures(),), targets=classes(), **more)


PLAIN = (
    Architecture(
        name="MLP",
        library="torch",
        build=lambda: nn.Sequential(nn.Linear(6, _WIDTH), nn.Tanh(), nn.Dropout(0.1), nn.Linear(_WIDTH, CLASSES)),
        inputs=(numbers(6),),
        targets=classes(),
    ),
    Architecture(
        name="tied autoencoder",
        library="torch",
        build=_TiedAutoencoder,
        inputs=(numbers(6),),
        targets=numbers(6),
        loss=squared_error,
        task="regression",
    ),
    _pictures("CNN, group norm", lambda: _cnn(_group_norm)),
    _pictures("CNN, batch norm", lambda: _cnn(nn.BatchNorm2d), refused=COUPLED),
    _pictures(
        "CNN, instance norm with statistics",
        lambda: _cnn(lambda channels: nn.InstanceNorm2d(channels, affine=True, track_running_stats=True)),
        refused="keeps running statistics",
    ),
    _texts("LSTM", lambda: _recurrent(nn.LSTM)),
    _texts("GRU", lambda: _recurrent(nn.GRU)),
    _texts("RNN", lambda: _recurrent(nn.RNN)),
    _texts("EmbeddingBag", lambda: nn.Sequential(nn.EmbeddingBag(WORDS, _WIDTH), nn.Linear(_WIDTH, CLASSES))),
    _texts("nn.TransformerEncoder", _encoder),
    Architecture(
        name="nn.Transformer",
        library="torch",
        build=_Seq2Seq,
        inputs=(ids(), ids(shift=1)),
        targets=classes(),
    ),
)
"""In the order of the table."""


# Small random networks as people bring them: those of transformers and those of torch, each with tiny records.
#
# What a model of this list does, `benchmarks/model_table.py` prints; what it must do, `tests/models` asks.

ARCHITECTURES: dict[str, Architecture] = {each.name: each for each in (*TRANSFORMERS, *PLAIN)}
"""By name."""
