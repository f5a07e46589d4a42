"""Networks for embeddings, classes, next tokens and values, their weights, and checks of any module."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.models.adapters import Projected, add_lora, add_projection, merge_lora
    from sfumato.models.catalogue import (
        BACKBONES,
        CLASSIFIERS,
        LANGUAGE_MODELS,
        RECOMMENDERS,
        backbone,
        classifier,
        custom_model,
        is_custom_model,
        language_model,
        recommender,
        refuse_missing_module,
        usual_network,
    )
    from sfumato.models.check import Change, coupled_layers, fix_model, refuse_batch_norm, refuse_no_values
    from sfumato.models.features import (
        FEATURES,
        HOG,
        ImageNetColours,
        ImageNetFeatures,
        feature_extractor,
        features_of,
        imagenet_features,
    )
    from sfumato.models.lenets import LeNet, LeNet5, LeNet300100, lenet, lenet5, lenet300_100
    from sfumato.models.mobile_facenet import MobileFaceNet, mobilefacenet
    from sfumato.models.mobilenet import MobileNetV2, mobilenet_v2
    from sfumato.models.pretrained import LoadReport, load_pretrained
    from sfumato.models.public_batch_norm import (
        PublicBatchNorm,
        add_statistics_gradient,
        refresh_statistics,
        use_public_batch,
    )
    from sfumato.models.recommenders import (
        LinearHead,
        MatrixFactorization,
        NeuralCollaborativeFiltering,
        Recommender,
        linear_head,
        matrix_factorization,
        neural_collaborative_filtering,
    )
    from sfumato.models.resnet import (
        ResNet,
        resnet18,
        resnet18_classifier,
        resnet20,
        resnet20_classifier,
        resnet50,
    )
    from sfumato.models.scatternet import (
        MorletBank,
        Scattering,
        ScatterLinear,
        morlet_bank,
        scattering,
        scatternet_linear,
    )
    from sfumato.models.squeeze_net import SqueezeNet, squeezenet
    from sfumato.models.table import DLRM, CTRModel, ctr_model, dlrm, embedding_width
    from sfumato.models.text import (
        BiLSTMClassifier,
        LSTMLanguageModel,
        TransformerClassifier,
        TransformerLanguageModel,
        bilstm_classifier,
        lstm,
        transformer,
        transformer_classifier,
    )
    from sfumato.models.trainable import Part, Stage, freeze, stages_of, trainable_parameters
    from sfumato.models.weights import load_weights, read_metadata, save_weights, transfer_weights
    from sfumato.models.wide_resnet import WideResNet, WSConv2d, wrn16_4

__all__ = [
    "BACKBONES",
    "CLASSIFIERS",
    "DLRM",
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
    "custom_model",
    "dlrm",
    "embedding_width",
    "feature_extractor",
    "features_of",
    "fix_model",
    "freeze",
    "imagenet_features",
    "is_custom_model",
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
    "refuse_missing_module",
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
    "usual_network",
    "wrn16_4",
]
__getattr__, __dir__ = lazily(__name__)
