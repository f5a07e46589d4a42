"""Networks for embeddings, classes, next tokens and values, their weights, and checks of any module."""

from sfumato.models.adapters import Projected, add_lora, add_projection, merge_lora
from sfumato.models.backbones.lenet import LeNet, lenet
from sfumato.models.backbones.mobilefacenet import MobileFaceNet, mobilefacenet
from sfumato.models.backbones.mobilenet import MobileNetV2, mobilenet_v2
from sfumato.models.backbones.resnet import (
    ResNet,
    resnet18,
    resnet18_classifier,
    resnet20,
    resnet20_classifier,
    resnet50,
)
from sfumato.models.backbones.squeezenet import SqueezeNet, squeezenet
from sfumato.models.catalogue import (
    BACKBONES,
    CLASSIFIERS,
    LANGUAGE_MODELS,
    RECOMMENDERS,
    backbone,
    classifier,
    language_model,
    recommender,
)
from sfumato.models.check import coupled_layers, refuse_batch_norm, refuse_no_values
from sfumato.models.classifiers.bilstm import BiLSTMClassifier, bilstm_classifier
from sfumato.models.classifiers.ctr import CTRModel, ctr_model, embedding_width
from sfumato.models.classifiers.lenet5 import LeNet5, lenet5
from sfumato.models.classifiers.lenet300_100 import LeNet300100, lenet300_100
from sfumato.models.classifiers.scatternet import ScatterLinear, scatternet_linear
from sfumato.models.classifiers.transformer import TransformerClassifier, transformer_classifier
from sfumato.models.classifiers.wide_resnet import WideResNet, wrn16_4
from sfumato.models.features.extract import FEATURES, feature_extractor, features_of
from sfumato.models.features.hog import HOG
from sfumato.models.features.imagenet import ImageNetFeatures, imagenet_features
from sfumato.models.fix import Change, fix_model
from sfumato.models.freeze import freeze, trainable_parameters
from sfumato.models.layers.imagenet_colours import ImageNetColours
from sfumato.models.layers.morlet import MorletBank, morlet_bank
from sfumato.models.layers.public_batch_norm import PublicBatchNorm, refresh_statistics, use_public_batch
from sfumato.models.layers.scattering import Scattering, scattering
from sfumato.models.layers.statistics_gradient import add_statistics_gradient
from sfumato.models.layers.ws_conv import WSConv2d
from sfumato.models.recommenders.base import Recommender
from sfumato.models.recommenders.linear_head import LinearHead, linear_head
from sfumato.models.recommenders.matrix_factorization import MatrixFactorization, matrix_factorization
from sfumato.models.recommenders.neural import NeuralCollaborativeFiltering, neural_collaborative_filtering
from sfumato.models.sequences.lstm import LSTMLanguageModel, lstm
from sfumato.models.sequences.transformer import TransformerLanguageModel, transformer
from sfumato.models.stages import Part, Stage, stages_of
from sfumato.models.weights.files import load_weights, read_metadata, save_weights
from sfumato.models.weights.pretrained import LoadReport, load_pretrained
from sfumato.models.weights.transfer import transfer_weights

__all__ = [
    "BACKBONES",
    "CLASSIFIERS",
    "FEATURES",
    "HOG",
    "LANGUAGE_MODELS",
    "RECOMMENDERS",
    "BiLSTMClassifier",
    "CTRModel",
    "Change",
    "ImageNetColours",
    "ImageNetFeatures",
    "LSTMLanguageModel",
    "LeNet",
    "LeNet5",
    "LeNet300100",
    "LinearHead",
    "LoadReport",
    "MatrixFactorization",
    "MobileFaceNet",
    "MobileNetV2",
    "MorletBank",
    "NeuralCollaborativeFiltering",
    "Part",
    "Projected",
    "PublicBatchNorm",
    "Recommender",
    "ResNet",
    "ScatterLinear",
    "Scattering",
    "SqueezeNet",
    "Stage",
    "TransformerClassifier",
    "TransformerLanguageModel",
    "WSConv2d",
    "WideResNet",
    "add_lora",
    "add_projection",
    "add_statistics_gradient",
    "backbone",
    "bilstm_classifier",
    "classifier",
    "coupled_layers",
    "ctr_model",
    "embedding_width",
    "feature_extractor",
    "features_of",
    "fix_model",
    "freeze",
    "imagenet_features",
    "language_model",
    "lenet",
    "lenet5",
    "lenet300_100",
    "linear_head",
    "load_pretrained",
    "load_weights",
    "lstm",
    "matrix_factorization",
    "merge_lora",
    "mobilefacenet",
    "mobilenet_v2",
    "morlet_bank",
    "neural_collaborative_filtering",
    "read_metadata",
    "recommender",
    "refresh_statistics",
    "refuse_batch_norm",
    "refuse_no_values",
    "resnet18",
    "resnet18_classifier",
    "resnet20",
    "resnet20_classifier",
    "resnet50",
    "save_weights",
    "scattering",
    "scatternet_linear",
    "squeezenet",
    "stages_of",
    "trainable_parameters",
    "transfer_weights",
    "transformer",
    "transformer_classifier",
    "use_public_batch",
    "wrn16_4",
]
