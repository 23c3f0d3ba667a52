"""The description of a model file as text, for `earmark info` and the log of a training."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from earmark.data.features import OF_LOG_MELS
from earmark.errors import BundleError, refusing


def validation_table(classes: Mapping[str, Mapping[str, Any]], labels: Sequence[str]) -> str:
    """Return what the validation clips said of each class as a table of up to 80 columns.

    Args:
        classes: label -> "n_positive", "average_precision", "roc_auc", "f1"; None is undefined.
        labels: the classes, in this order.

    >>> dog = {"n_positive": 12, "average_precision": 0.81, "roc_auc": None, "f1": 0.75}
    >>> print(validation_table({"dog": dog}, ["dog"]))
    class  clips  average precision    AUC     F1
    dog       12              0.810      -  0.750
    """
    columns = ("average_precision", "roc_auc", "f1")
    width = min(40, max(len(label) for label in ("class", *labels)))
    lines = [f"{'class':{width}}  clips  average precision    AUC     F1"]
    for label in labels:
        own = classes[label]
        texts = ("-" if own[name] is None else f"{own[name]:.3f}" for name in columns)
        precision, auc, f1 = texts
        name = label if len(label) <= width else f"{label[: width - 3]}..."
        lines.append(f"{name:{width}}  {own['n_positive']:5}  {precision:>17}  {auc:>5}  {f1:>5}")
    return "\n".join(lines)


def describe_bundle(about: Mapping[str, Any]) -> str:
    """Return what `Bundle.describe` returns as lines of text; statistics of features are counted.

    Of a waveform, the settings of log-mels, which have no effect there, are left out.

    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> about = load_bundle(BUNDLED).describe()
    >>> describe_bundle(about).splitlines()[0].split(",")[0]
    '17 classes'
    """
    with refusing("The description of the model cannot be shown", BundleError):
        return "\n".join(_described(about))


def _described(about: Mapping[str, Any]) -> list[str]:
    n_members = len(about["members"])
    networks = f"{n_members} networks, " if n_members > 1 else ""
    lines = [f"{len(about['labels'])} classes, {networks}{about['n_parameters']:,} parameters"]
    training = dict(about["training"])
    classes = training.pop("classes", None)  # newer than the first model files
    lines += [f"{name}: {_settings(own)}" for name, own in _shared(about, "models", "model")]
    for summary in training.get("models", [training]):  # an ensemble has those of its models
        lines.append(f"training: {_settings(summary)}")
    lines += [f"{name}: {_settings(about[name])}" for name in ("tuning", "versions")]
    for name, own in _shared(about, "features", "features"):
        hidden = {"mean", "std", *(OF_LOG_MELS if own.get("kind") == "waveform" else ())}
        plain = {key: value for key, value in own.items() if key not in hidden}
        lines.append(f"{name}: {_settings(plain)}")
        lines.append(f"normalisation: {_normalisation(len(own['mean']))}")
    windows = dict.fromkeys(f"{member['window']:g}" for member in about["members"])
    lines += [
        f"window: {' and '.join(windows)} s",
        f"licence: {about['licence'] or 'not stated'}",
        "attribution:" if about["attribution"] else "attribution: not stated",
        *(f"  {line}" for line in about["attribution"]),
        "calibration: "
        + (", ".join(f"{k}={v:.3g}" for k, v in (about["calibration"] or {}).items()) or "none"),
    ]
    if classes:
        lines += ["validation clips:", validation_table(classes, about["labels"])]
    decoding = about["decoding"]
    names = list(decoding[about["labels"][0]])
    lines.append("\t".join(["label", *names]))
    for label, rule in decoding.items():
        lines.append("\t".join([label, *(f"{rule[name]:.3g}" for name in names)]))
    return lines


def _shared(
    about: Mapping[str, Any], section: str, field: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each configuration of a section, with a name that says whose it is."""
    for number, own in enumerate(about[section]):
        of = [str(at) for at, member in enumerate(about["members"]) if member[field] == number]
        is_shared = len(about[section]) == 1
        yield field if is_shared else f"{field} of member {', '.join(of)}", own


def _normalisation(n_values: int) -> str:
    if n_values == 1:
        return "one mean and one standard deviation for all values"
    return f"{n_values} means and standard deviations"


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())
