"""Trained networks <-> one self-describing file.

Conventions: a safetensors file (no pickle, nothing that could run) whose metadata holds one JSON
text: labels, features, normalisation, networks, decoding, calibration, how it was tuned and
trained, versions, licence and attribution. A file has one network or several, its members, which
predict as one. Features and networks that members share are described once; the tensors of member 0
have the prefix "0.". Checksums cover the text and the weights: a damaged file is refused. Files of
older formats are migrated when they are read (`MIGRATIONS`), and settings that a file does not have
yet get their defaults. Whatever is wrong with a file is a `BundleError`.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from earmark.config import build
from earmark.data.encoded import encoder_file, encoder_sha256
from earmark.data.features import FeatureConfig
from earmark.errors import BundleError, SettingError, choose, listed, refusing
from earmark.files import check_writable
from earmark.inference.calibration import Calibration
from earmark.inference.decoding import Decoding
from earmark.inference.member import WINDOW, Member
from earmark.nn.network import Network, NetworkConfig
from earmark.nn.networks import read_network
from earmark.tensors import checksum, load_tensors, save_tensors

FORMAT = 4  # raised when an older Earmark could not read the file any more
SUFFIX = ".earmark"
EVERYDAY = "everyday"  # the name of the bundled pretrained model, wherever a model file is named
BUNDLED = Path(__file__).parents[1] / "models" / f"{EVERYDAY}{SUFFIX}"
CARD = BUNDLED.with_suffix(".json")  # its scores, written by `python -m benchmarks.everyday`

Item = TypeVar("Item")

_PLAIN = {
    "tuning": (Mapping,),
    "training": (Mapping,),
    "versions": (Mapping,),
    "licence": (str,),
    "attribution": (tuple, list),
}
_FIELDS = (
    "format", "labels", "features", "models", "members", "decoding", "calibration",
    "n_parameters", *_PLAIN,
)  # fmt: skip
_MEMBER_FIELDS = ("features", "model", "window")


def installed_versions() -> dict[str, str]:
    """Return the versions of the packages that results depend on."""
    found = {}
    for name in ("earmark", "torch", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


@dataclass(frozen=True)
class Bundle:
    """Trained networks with all that detection needs, and where they come from.

    Most have one network; with several, an ensemble, the scores are the mean of theirs. The
    properties `feature_config`, `model_config`, `weights` and `window`, and `build_model`, are
    those of the one network; of an ensemble, ask `members`.

    Args:
        labels: the classes, in the order of the networks' outputs.
        members: one network or more, with their features.
        decoding: thresholds and post-processing.
        tuning: how the decoding was tuned: "supervision" is "weak", "strong" or "none".
        training: a summary: epochs, losses, clips, settings.
        versions: of what made the file.
        licence: of the weights.
        attribution: authors of the recordings they were trained on.
        calibration: turns the scores of events into probabilities; None leaves them as they are.

    >>> len(load_bundle(BUNDLED).members)
    1
    """

    labels: tuple[str, ...]
    members: tuple[Member, ...]
    decoding: Decoding
    tuning: Mapping[str, Any] = field(default_factory=lambda: {"supervision": "none"})
    training: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=installed_versions)
    licence: str = ""
    attribution: tuple[str, ...] = ()
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        for name, kinds in _PLAIN.items():
            if not isinstance(getattr(self, name), kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                raise SettingError(f"{name} must be a {wanted}. Got {getattr(self, name)!r}.")
        if not all(isinstance(line, str) for line in self.attribution):
            raise SettingError(f"attribution must be texts. Got {self.attribution!r}.")
        object.__setattr__(self, "attribution", tuple(self.attribution))
        object.__setattr__(self, "members", tuple(self.members))
        if not self.members:
            raise SettingError("A model has one network or more. Got members=().")
        for member in self.members:
            n_classes = member.model_config.n_classes
            if len(self.labels) != n_classes or self.labels != self.decoding.labels:
                raise SettingError(
                    "labels, the network's classes and the decoding must be the same. Got "
                    f"{len(self.labels)} labels, {n_classes} classes, a decoding of "
                    f"{len(self.decoding.labels)}."
                )

    def __repr__(self) -> str:
        n_parameters = sum(member.n_parameters for member in self.members)
        networks = "1 network" if len(self.members) == 1 else f"{len(self.members)} networks"
        classes = f"{len(self.labels)} classes: {listed(self.labels)}"
        return f"Bundle({classes}; {networks}, {n_parameters:,} parameters)"

    @property
    def feature_config(self) -> FeatureConfig:
        """Of the one network."""
        return self._only.feature_config

    @property
    def model_config(self) -> NetworkConfig:
        """Of the one network."""
        return self._only.model_config

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """Of the one network."""
        return self._only.weights

    @property
    def window(self) -> float:
        """Of the one network, in seconds."""
        return self._only.window

    def build_model(self) -> Network:
        """Return the one network, ready to predict."""
        return self._only.build_model()

    @property
    def _only(self) -> Member:
        if len(self.members) > 1:
            raise SettingError(
                f"The model is an ensemble of {len(self.members)} networks; ask one of its members."
            )
        return self.members[0]

    @property
    def feature_configs(self) -> list[FeatureConfig]:
        """The different features of the members, in the order of the first that has them."""
        return _distinct(member.feature_config for member in self.members)

    def check_weights(self) -> None:
        """Raise `SettingError` unless the weights are those of the networks."""
        for number, member in enumerate(self.members):
            try:
                member.check_weights()
            except SettingError as error:
                if len(self.members) == 1:
                    raise
                raise SettingError(f"member {number}: {error}") from None

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as plain values."""
        features = self.feature_configs
        models = _distinct(member.model_config for member in self.members)
        members = [
            {
                "features": features.index(member.feature_config),
                "model": models.index(member.model_config),
                "window": member.window,
            }
            for member in self.members
        ]
        return {
            "format": FORMAT,
            "labels": list(self.labels),
            "features": [config.to_dict() for config in features],
            "models": [config.to_dict() for config in models],
            "members": members,
            "decoding": self.decoding.to_dict(),
            "calibration": None if self.calibration is None else asdict(self.calibration),
            "tuning": dict(self.tuning),
            "training": dict(self.training),
            "versions": dict(self.versions),
            "licence": self.licence,
            "attribution": list(self.attribution),
            "n_parameters": sum(member.n_parameters for member in self.members),
        }

    def select(self, labels: Sequence[str]) -> "Bundle":
        """Return the networks of these classes alone, in this order; their scores stay the same."""
        for label in labels:
            choose("label", label, self.labels)
        columns = [self.labels.index(label) for label in labels]
        return replace(
            self,
            labels=tuple(labels),
            members=tuple(member.select(columns) for member in self.members),
            decoding=self.decoding.select(labels),
        )

    def halved(self) -> "Bundle":
        """Return the same networks in half precision, for a file of half the size."""
        return replace(self, members=tuple(member.halved() for member in self.members))

    def with_encoder(self, file: str | os.PathLike[str]) -> "Bundle":
        """Return the same networks with the place of their encoder's file; its hash stays the same.

        Where members have different encoders, it is the place of the one with the file's hash.
        """
        encoders = (member.feature_config.encoder for member in self.members)
        known = {encoder.sha256 for encoder in encoders if encoder is not None}
        if not known:
            raise SettingError(f"The model has no encoder; leave out encoder={os.fspath(file)!r}.")
        path = encoder_file(file)
        if len(known) > 1:
            own = encoder_sha256(path)
            if own not in known:
                raise SettingError(f"{path} is none of the {len(known)} encoders of the model.")
            known = {own}
        members = (
            member
            if (encoder := member.feature_config.encoder) is None or encoder.sha256 not in known
            else member.with_encoder(path)
            for member in self.members
        )
        return replace(self, members=tuple(members))

    def with_decoding(
        self,
        decoding: Decoding,
        tuning: Mapping[str, Any],
        calibration: Calibration | None = None,
    ) -> "Bundle":
        """Return the same networks with another decoding, and a calibration of its events."""
        return replace(self, decoding=decoding, tuning=tuning, calibration=calibration)


def _distinct(items: Iterable[Item]) -> list[Item]:
    return list(dict.fromkeys(items))


def save_bundle(bundle: Bundle, path: str | os.PathLike[str]) -> Path:
    """Write the file; return its path."""
    target = Path(path)
    for member in bundle.members:
        if member.model_config.network == "onnx":
            raise SettingError(
                "The network of an ONNX file cannot be written as a model file; copy the ONNX file."
            )
    check_writable(target)
    about, weights = _content(bundle)
    save_tensors(target, weights, about)
    return target


def check_target(path: str | os.PathLike[str]) -> None:
    """Raise if a model file cannot be written, before the work that makes the model.

    >>> check_target(BUNDLED)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: The bundled model stays as it is; name another file to write.
    """
    if Path(path).resolve() == BUNDLED.resolve():
        raise SettingError("The bundled model stays as it is; name another file to write.")
    check_writable(Path(path))


def bundle_checksum(bundle: Bundle) -> str:
    """Return the checksum of a model: two that differ in anything that is saved differ in it."""
    about, weights = _content(bundle)
    return checksum(about, {name: value.detach().cpu() for name, value in weights.items()})


def _content(bundle: Bundle) -> tuple[str, dict[str, Tensor]]:
    about = json.dumps(bundle.describe(), sort_keys=True, ensure_ascii=False)
    weights = {
        f"{number}.{name}": value
        for number, member in enumerate(bundle.members)
        for name, value in member.weights.items()
    }
    return about, weights


def read_card() -> dict[str, Any]:
    """Return the scores of the bundled model on a test set, with their confidence intervals.

    >>> read_card()["n_scenes"]
    1000
    """
    card: dict[str, Any] = json.loads(CARD.read_text())
    return card


def find_model(path: str | os.PathLike[str]) -> Path:
    """Return the path of a model file; "everyday" is the bundled one, unless there is such a file.

    >>> find_model("everyday").name, find_model("run/model.earmark").name
    ('everyday.earmark', 'model.earmark')
    """
    source = Path(path)
    return BUNDLED if source == Path(EVERYDAY) and not source.exists() else source


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a model file of this or an older format; a damaged one is refused."""
    source = find_model(path)
    if source.is_dir():
        raise BundleError(f"{source} is a folder; name the model file in it, as model{SUFFIX}.")
    if not source.exists():
        raise BundleError(
            f"There is no model file {source}. The bundled model is called {EVERYDAY}."
        )
    text, weights = load_tensors(source, "model", BundleError)
    with refusing(f"{source} is not a usable model file", BundleError):
        values = json.loads(text)
        if not isinstance(values, dict):
            raise SettingError(f"its description must be a table. Got {values!r}.")
        if type(values["format"]) is not int or values["format"] < 1:
            raise SettingError(f"its format must be a number from 1 on. Got {values['format']!r}.")
        if values["format"] < 4:  # which had one network
            weights = {f"0.{name}": value for name, value in weights.items()}
        values = migrate(values)
        if values["format"] != FORMAT:
            made_by = dict(values.get("versions", {})).get("earmark", "unknown")
            raise BundleError(
                f"{source} has format {values['format']!r} (made by Earmark {made_by}), and this "
                f"version reads up to format {FORMAT}; install a newer version of Earmark."
            )
        for name in values:
            choose("field of a model file", name, _FIELDS)
        labels, decoding = tuple(values["labels"]), Decoding.from_dict(values["decoding"])
        if {*labels} == {*decoding.labels}:  # the text is written with its keys in order
            decoding = decoding.select(labels)
        bundle = Bundle(
            labels=labels,
            members=tuple(_read_members(values, weights)),
            decoding=decoding,
            calibration=_calibration(values.get("calibration")),
            **{name: values[name] for name in _PLAIN if name in values},
        )
        bundle.check_weights()
    return bundle


def _read_members(values: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Iterator[Member]:
    """Yield the networks that a description has, with their weights."""
    features = [build(FeatureConfig, "features", own) for own in _list(values, "features")]
    models = [read_network(own) for own in _list(values, "models")]
    members = _list(values, "members")
    by_member: dict[str, dict[str, Tensor]] = {str(number): {} for number in range(len(members))}
    for name, value in weights.items():
        number, _, rest = name.partition(".")
        if number not in by_member:
            raise SettingError(f"The model has no weights {name!r}.")
        by_member[number][rest] = value
    for own, tensors in zip(members, by_member.values(), strict=True):
        for name in own:
            choose("field of a member", name, _MEMBER_FIELDS)
        yield Member(
            _at(features, "features", own["features"]),
            _at(models, "models", own["model"]),
            tensors,
            own.get("window", WINDOW),
        )


def _list(values: Mapping[str, Any], name: str) -> list[Any]:
    own = values[name]
    if not isinstance(own, list):
        raise SettingError(f"its {name} must be a list. Got {own!r}.")
    return own


def _at(items: Sequence[Item], name: str, number: Any) -> Item:
    if type(number) is not int or not 0 <= number < len(items):
        raise SettingError(f"a member has {name}[{number!r}], and there are {len(items)}.")
    return items[number]


def _calibration(values: object) -> Calibration | None:
    return None if values is None else build(Calibration, "calibration", values)


def migrate(values: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a model file in the newest format.

    >>> features, decoding = {"rate": 8000}, {"labels": [], "tag_threshold": []}
    >>> old = {"format": 1, "features": features, "model": {}, "decoding": decoding}
    >>> migrate(old)["features"]
    [{'sample_rate': 8000}]
    """
    while values["format"] in MIGRATIONS:
        values = MIGRATIONS[values["format"]](values)
    return values


def _from_format_1(values: dict[str, Any]) -> dict[str, Any]:
    """Rename settings; turn six lists with one value per class into one rule per class."""
    features = dict(values["features"])
    features["sample_rate"] = features.pop("rate")
    columns = dict(values["decoding"])
    labels = columns.pop("labels")
    columns["clip_threshold"] = columns.pop("tag_threshold")
    rules = (dict(zip(columns, rule, strict=True)) for rule in zip(*columns.values(), strict=True))
    decoding = dict(zip(labels, rules, strict=True))
    training = dict(values.get("training", {}))
    if "settings" in training:
        settings = {section: dict(own) for section, own in training["settings"].items()}
        for section, names in _FIRST_NAMES.items():
            own = settings.get(section, {})
            settings[section] = {names.get(name, name): value for name, value in own.items()}
        training["settings"] = settings
    changed = {"features": features, "decoding": decoding, "training": training}
    return values | {"format": 2} | changed


def _from_format_2(values: dict[str, Any]) -> dict[str, Any]:
    """Files of format 2 have no calibration."""
    return values | {"format": 3}


def _from_format_3(values: dict[str, Any]) -> dict[str, Any]:
    """Files of format 3 have one network."""
    rest = {name: value for name, value in values.items() if name not in ("model", "window")}
    member = {"features": 0, "model": 0, "window": values.get("window", WINDOW)}
    changed = {"features": [values["features"]], "models": [values["model"]], "members": [member]}
    return rest | {"format": 4} | changed


# Settings of a training in files of format 1 -> their names now.
_FIRST_NAMES = {
    "training": {"average": "ema_decay", "frame_share": "frame_loss_weight", "keep": "checkpoint"},
    "augment": {"overlay": "mixing", "filter_db": "eq_db"},
}


# Format -> what turns the description of a file in that format into the next one.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _from_format_1,
    2: _from_format_2,
    3: _from_format_3,
}
