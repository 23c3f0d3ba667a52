"""The description of a model file as text, for `earmark info` and the log of a training."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from earmark.data.features import OF_LOG_MELS
from earmark.errors import BundleError, refusing

NAMES = 13  # characters for the names of a summary
MOST = {"classes": 10, "scores": 4, "licence": 1}  # lines on one screen; others have 2
CUT = " ... (--details)"


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
        name = f"{_shortened(label, width):{width}}"
        lines.append(f"{name}  {own['n_positive']:5}  {precision:>17}  {auc:>5}  {f1:>5}")
    return "\n".join(lines)


def describe_bundle(about: Mapping[str, Any]) -> str:
    """Return what `Bundle.describe` returns as lines of 80 columns; long lists are counted.

    Of a waveform, the settings of log-mels, which have no effect there, are left out.

    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> about = load_bundle(BUNDLED).describe()
    >>> describe_bundle(about).splitlines()[0].split(",")[0]
    '17 classes'
    """
    with refusing("The description of the model cannot be shown", BundleError):
        return "\n".join(line for text in _described(about) for line in _wrapped(text))


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
        f"attribution: {_count_credits(about['attribution'])}",
        "calibration: "
        + (", ".join(f"{k}={v:.3g}" for k, v in (about["calibration"] or {}).items()) or "none"),
    ]
    if classes:
        table = validation_table(classes, about["labels"])
        lines += ["validation clips:", *table.splitlines()]
    return [*lines, "rule of each class, lengths in seconds:", *_rule_table(about["decoding"])]


def _rule_table(decoding: Mapping[str, Mapping[str, float]]) -> list[str]:
    names = list(next(iter(decoding.values())))
    heads = [name.removesuffix("_threshold") for name in names]
    width = min(20, max(len(label) for label in ("class", *decoding)))
    lines = [" ".join([f"{'class':{width}}", *(f"{head:>5}" for head in heads)])]
    for label, rule in decoding.items():
        numbers = (
            f"{rule[name]:>{max(5, len(head))}.3g}" for name, head in zip(names, heads, strict=True)
        )
        lines.append(" ".join([f"{_shortened(label, width):{width}}", *numbers]))
    return lines


def _shortened(label: str, width: int) -> str:
    return label if len(label) <= width else f"{label[: width - 3]}..."


def _wrapped(text: str) -> list[str]:
    if len(text) <= 80:
        return [text]
    how: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, 80, subsequent_indent="    ", **how)


def summarise_bundle(
    about: Mapping[str, Any], preset: str = "", card: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return what `Bundle.describe` returns in few words: name of a part -> what is to say of it.

    Args:
        about: the description.
        preset: name of the preset that it was trained with.
        card: what was measured on a test set, in place of the false events of its tuning; see
            `earmark.inference.model_file.read_card`.

    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> summarise_bundle(load_bundle(BUNDLED).describe(), "best")["features"]
    '80 log-mels, 50 to 14000 Hz, every 20 ms, at 32000 Hz'
    """
    training, tuning, labels = about["training"], about["tuning"], about["labels"]
    of_validation = training.get("classes") or {}
    classes = ", ".join(
        label + (f" {of_validation[label]['f1']:.2f}" if _has_f1(of_validation, label) else "")
        for label in labels
    )
    what = ", with F1 of their tags in validation" if of_validation else ""
    parts = {
        "classes": f"{len(labels)}{what}: {classes}",
        "networks": _networks(about),
        "preset": preset,
        "features": "; ".join(_features(own) for own in about["features"]),
        "training": _training(training),
        "validation": _validation(training),
        "decided by": _rules(about["decoding"]),
        "tuned on": _tuning(tuning),
        "false events": _false_events(tuning) if card is None else "",
        "scores": "" if card is None else _scores(card, tuning.get("of", "")),
        "licence": about["licence"] or "not stated",
        "attribution": _count_credits(about["attribution"]),
    }
    return {name: text for name, text in parts.items() if text}


def one_screen(parts: Mapping[str, str]) -> str:
    """Return a summary as text of 80 columns; what is too long for a screen is cut, and says so.

    >>> print(one_screen({"classes": "2: cat, dog", "licence": "MIT"}))
    classes      2: cat, dog
    licence      MIT
    """
    lines = []
    for name, text in parts.items():
        own = textwrap.wrap(text, 80 - NAMES, break_long_words=False, break_on_hyphens=False)
        most = MOST.get(name, 2)
        lines += [f"{name if not n else '':{NAMES}}{line}" for n, line in enumerate(own[:most])]
        if own[most:]:
            lines[-1] = f"{lines[-1][: 80 - len(CUT)]}{CUT}"
    return "\n".join(lines)


def _has_f1(classes: Mapping[str, Mapping[str, Any]], label: str) -> bool:
    return classes.get(label, {}).get("f1") is not None


def _networks(about: Mapping[str, Any]) -> str:
    texts = []
    for own in about["models"]:
        pooling, stages = own.get("pooling"), own.get("stages")
        text = own.get("network", "crnn")
        if pooling:
            text += f" with {pooling} pooling, "
            text += f"hierarchical {tuple(stages)}" if stages else "single-level"
        texts.append(text)
    windows = dict.fromkeys(f"{member['window']:g}" for member in about["members"])
    n_members = len(about["members"])
    many = f"{n_members} networks: " if n_members > 1 else ""
    return (
        f"{many}{'; '.join(texts)}; {about['n_parameters']:,} parameters; "
        f"window of {' and '.join(windows)} s"
    )


def _features(own: Mapping[str, Any]) -> str:
    if own.get("kind") == "waveform":
        return f"samples at {own['sample_rate']} Hz"
    mels = f"{own['n_mels']} log-mels, {own['f_min']:g} to {own['f_max']:g} Hz"
    encoder = own.get("encoder")
    of = f"the encoder {encoder['kind']} on " if encoder and "kind" in encoder else ""
    return f"{of}{mels}, every {own['hop'] * 1000:g} ms, at {own['sample_rate']} Hz"


def _training(training: Mapping[str, Any]) -> str:
    if "models" in training:
        return "; ".join(_training(own) for own in training["models"])
    if "n_train" not in training:
        return "not recorded"
    negatives = training.get("n_negatives", 0)
    return (
        f"{training['n_train']:,} clips"
        + (f", {negatives:,} of them negatives" if negatives else "")
        + f", {training.get('supervision', 'weak')} labels; {training.get('n_epochs', '?')} epochs"
        f", best {training.get('best_epoch', '?')}"
        + (f", {training['seconds'] / 60:.0f} minutes" if "seconds" in training else "")
        + ("" if training.get("finished", True) else "; not finished")
    )


def _validation(training: Mapping[str, Any]) -> str:
    if "n_valid" not in training or "best_valid_map" not in training:
        return "not recorded"
    return (
        f"{training['n_valid']:,} clips: mAP {training['best_valid_map']:.3f}, F1 "
        f"{training['best_valid_f1']:.3f} of the tags at 0.5, loss "
        f"{training['best_valid_loss']:.3f}"
    )


def _rules(decoding: Mapping[str, Mapping[str, float]]) -> str:
    """Return the range of each threshold and length over the classes; 0 is left out."""
    rules = list(decoding.values())
    texts = []
    for name in rules[0]:
        values = [rule[name] for rule in rules]
        if any(values):
            low, high = min(values), max(values)
            text = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
            unit = "" if name.endswith("threshold") else " s"
            texts.append(f"{name.replace('_', ' ')} {text}{unit}")
    return ", ".join(texts)


def _tuning(tuning: Mapping[str, Any]) -> str:
    if "score" not in tuning:
        return f"{tuning.get('supervision', 'none')}: how is not recorded"
    text = (
        f"{tuning['n_clips']:,} clips, {tuning['supervision']} labels, for "
        f"{tuning['objective'].replace('f_measure', 'F1').replace('_', ' ')}: {tuning['score']:.3f}"
    )
    ece = tuning.get("calibration", {}).get("ece")
    return text + (f"; calibration error of scores {ece:.3f}" if ece is not None else "")


def _false_events(tuning: Mapping[str, Any]) -> str:
    if "false_events" not in tuning:
        return ""
    false = tuning["false_events"]
    now: Mapping[str, float] = next(
        (point for point in false["curve"] if point["setting"] == 0), {}
    )
    recall = f", at a clip recall of {now['clip_recall']:.2f}" if "clip_recall" in now else ""
    return (
        f"{false['per_minute']:.2f} per minute of {false['n_recordings']} recordings without any "
        f"of the classes{recall}"
    )


def _scores(card: Mapping[str, Any], of: str) -> str:
    """Return the scores of a card with confidence intervals, and of which network they are."""

    def text(part: str, group: str, name: str, decimals: int = 2) -> str:
        own = card["intervals"][part][group][name]
        value, low, high = (f"{own[end]:.{decimals}f}" for end in ("value", "low", "high"))
        return f"{value} [{low}, {high}]"

    return (
        f"{card['n_scenes']:,} unseen scenes: segment F1 "
        f"{text('segment', 'f_measure', 'f_measure')}, event F1 "
        f"{text('event', 'f_measure', 'f_measure')}, clip recall "
        f"{text('clip', 'f_measure', 'recall')}, clip precision "
        f"{text('clip', 'f_measure', 'precision')}; unknown sounds: "
        f"{text('false_events', 'false_events', 'per_minute', 1)} false events per minute"
        + (f"; of {of}" if of else "")
    )


def _count_credits(attribution: Sequence[str]) -> str:
    return f"{len(attribution)} recordings" if attribution else "not stated"


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
    return ", ".join(f"{key}={text}" for key, text in _flat(values))


def _flat(values: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each value; those of a mapping have its name before theirs."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{within}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            yield f"{within}{key}", f"{len(value)} points"
        else:
            yield f"{within}{key}", f"{value:.6g}" if isinstance(value, float) else f"{value}"
