"""The end of a training: scores and warnings per class, and a model at any time."""

import logging
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tones import SMALL, write_tones

from earmark.data.manifest import Manifest
from earmark.data.store import FeatureStore
from earmark.errors import DataError, SettingError
from earmark.formats.tags import read_tags, write_tags
from earmark.inference.description import describe_bundle, validation_table
from earmark.inference.detector import load
from earmark.inference.ensemble import Ensemble
from earmark.inference.model_file import Bundle
from earmark.metrics.clip import clip_scores
from earmark.training.api import train
from earmark.training.checkpoint import CHECKPOINT, HISTORY, Checkpoint, State
from earmark.training.config import RunConfig
from earmark.training.finish import MODEL, TEACHER, export_best
from earmark.training.loop import _Trainer
from earmark.training.record import RECORD, RunRecord

OVERRIDES = [*SMALL, "training.threads=1", "model.dropout=0.2", "training.ema_decay=0.9"]


@pytest.fixture(scope="module")
def tones(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tones")
    write_tones(folder, 24, seed=1, prefix="train")
    write_tones(folder, 24, seed=2, prefix="valid")
    return folder


def run(tones, out, *overrides, valid="valid_weak.tsv", **how):
    tables = (tones / "train_weak.tsv", tones / valid, tones / "audio", out)
    config = RunConfig(store=how.pop("store", tones / "features"), **how)
    return train(*tables, overrides=[*OVERRIDES, *overrides], run=config)


@pytest.fixture
def stop_after(monkeypatch):
    """Return a function after which a training is interrupted at a step, as by Ctrl-C."""
    original = _Trainer.step

    def stop_after(n_steps):
        left = iter(range(n_steps))

        def step(self, rows):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return original(self, rows)

        monkeypatch.setattr(_Trainer, "step", step)

    yield stop_after
    monkeypatch.undo()


def test_a_training_stopped_in_its_first_generation_leaves_that_model(tones, tmp_path, stop_after):
    stop_after(2 * 3 + 1)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(tones, out, "training.generations=2")
    assert export_best(out).bundle.training["n_epochs"] == 2
    assert (out / MODEL).exists() and not (out / TEACHER / MODEL).exists()


def test_a_generation_that_has_only_begun_leaves_the_one_before(tones, tmp_path, stop_after):
    out = tmp_path / "run"
    settings = ("training.generations=2", "training.max_epochs=1", "training.checkpoint_seconds=0")
    stop_after(3 + 1)  # an epoch of the first generation, and a step of the second
    with pytest.raises(KeyboardInterrupt):
        run(tones, out, *settings)
    assert (out / CHECKPOINT).exists()
    exported = export_best(out).bundle
    teacher = load(out / TEACHER / MODEL).bundle
    assert all(exported.weights[name].equal(value) for name, value in teacher.weights.items())


def test_a_stopped_training_leaves_the_model_of_its_best_epoch(tones, tmp_path, stop_after):
    stop_after(2 * 3 + 1)  # in the third epoch
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(tones, out, "training.max_epochs=6", licence="CC0", attribution=("me",))
    assert not (out / MODEL).exists()
    (out / HISTORY).unlink()  # as if it had been killed before it was written
    bundle = export_best(out).bundle
    checkpoint = Checkpoint.read(out)
    assert all(bundle.weights[name].equal(value) for name, value in checkpoint.best[0].items())
    assert bundle.training["n_epochs"] == 2
    assert not bundle.training["finished"]
    assert (bundle.licence, bundle.attribution) == ("CC0", ("me",))
    assert len((out / HISTORY).read_text().splitlines()) == 3
    assert load(out / MODEL).bundle.decoding == bundle.decoding


def test_an_export_is_the_model_that_the_training_wrote_also_after_a_move(tones, tmp_path):
    out = tmp_path / "run"
    run(tones, out, "training.max_epochs=1", store=None)
    before = RunRecord.read(out)
    with pytest.raises(SettingError, match="another data or settings"):
        run(tones, out, "training.max_epochs=1", "training.seed=7", store=None, resume=True)
    assert RunRecord.read(out) == before  # a refused resume leaves it alone
    shutil.move(out, tmp_path / "moved")
    export_best(tmp_path / "moved", tmp_path / "again.earmark")
    written = (tmp_path / "moved" / MODEL).read_bytes()
    assert (tmp_path / "again.earmark").read_bytes() == written
    assert load(tmp_path / "again.earmark").bundle.training["finished"]


def test_an_export_does_not_disturb_the_resumed_training(tones, tmp_path, stop_after, monkeypatch):
    run(tones, tmp_path / "whole", "training.max_epochs=2")
    stop_after(4)  # in the second epoch
    with pytest.raises(KeyboardInterrupt):
        run(tones, tmp_path / "run", "training.max_epochs=2")
    export_best(tmp_path / "run")
    monkeypatch.undo()
    run(tones, tmp_path / "run", "training.max_epochs=2", resume=True)
    a, b = (load(tmp_path / name / MODEL).bundle for name in ("whole", "run"))
    assert all(a.weights[name].equal(b.weights[name]) for name in a.weights)


MEMBERS = ("training.members=3", "training.max_epochs=6", "training.learning_rate=0.01")


def settings_of(which):
    return (*MEMBERS, f"training.checkpoint={which}", "training.checkpoint_seconds=0")


class Whole(NamedTuple):
    """A training without an interrupt: its folder, model, log and validated weights by epoch."""

    out: Path
    bundle: Bundle
    log: list[str]
    every_epoch: list[dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def wholes(tones):
    """Trainings whose members are the best epochs, and the last ones."""
    logger, done = logging.getLogger("earmark"), {}
    level = logger.level
    for which in ("best", "last"):
        log, every_epoch, original = [], [], _Trainer.validate

        def validate(self, original=original, found=every_epoch):
            found.append({name: x.clone() for name, x in self.ema.model.state_dict().items()})
            return original(self)

        handler = logging.NullHandler()
        handler.handle = lambda record, to=log: to.append(record.getMessage())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_Trainer, "validate", validate)
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
            try:
                bundle = run(tones, tones / which, *settings_of(which)).bundle
            finally:
                logger.removeHandler(handler)
                logger.setLevel(level)
        done[which] = Whole(tones / which, bundle, log, every_epoch)
    return done


@pytest.mark.parametrize("which", ["best", "last"])
def test_the_best_or_the_last_epochs_become_the_members(tones, wholes, tmp_path, which):
    out, bundle, _, every_epoch = wholes[which]
    checkpoint = Checkpoint.read(out)
    losses = [row.valid_loss for row in checkpoint.state.history]
    epochs = bundle.training["member_epochs"]
    ranked = sorted(range(6), key=losses.__getitem__) if which == "best" else [5, 4, 3]
    assert epochs == ranked[:3] and sorted(epochs) != [0, 1, 2]
    assert len(checkpoint.best) == len(bundle.members) == 3
    for epoch, member, kept in zip(epochs, bundle.members, checkpoint.best, strict=True):
        for name, value in every_epoch[epoch].items():
            assert member.weights[name].equal(value) and kept[name].equal(value)
    about = load(out / MODEL).bundle.describe()
    assert (len(about["features"]), len(about["models"]), len(about["members"])) == (1, 1, 3)
    alone = run(tones, tmp_path / "one", *MEMBERS[1:], f"training.checkpoint={which}").bundle
    first = bundle.members[0].weights
    assert all(first[name].equal(value) for name, value in alone.weights.items())


@pytest.mark.parametrize(("n_members", "warned"), [(1, False), (2, True), (3, True)])
def test_a_model_of_all_epochs_gets_a_warning(tones, tmp_path, caplog, n_members, warned):
    run(tones, tmp_path / "run", "training.max_epochs=2", f"training.members={n_members}")
    assert ("is the mean of all epochs, the first included" in caplog.text) == warned


def test_the_figures_of_an_ensemble_are_those_of_the_mean(tones, wholes):
    _, bundle, log, _ = wholes["best"]
    clips = Manifest.read(tones / "valid_weak.tsv", tones / "audio")
    store = FeatureStore.open(tones / "features")
    parts = [Ensemble([member]).predict_clips(clips, [store]) for member in bundle.members]
    probs = np.mean([[own.clip_level() for own in part] for part in parts], axis=0)
    wanted = clip_scores(
        dict(zip(clips.files, clips.tags, strict=True)),
        probs=dict(zip(clips.files, probs, strict=True)),
        labels=clips.labels,
    )
    for label, own in bundle.training["classes"].items():
        ranking = wanted.class_wise[label]["ranking"]
        assert own["average_precision"] == pytest.approx(ranking["average_precision"], abs=1e-6)
    a, b, c = bundle.training["member_epochs"]
    text = f"validation clips, the mean of epochs {a}, {b} and {c}:"
    assert any(text in message for message in log)


# Before the end of an epoch there is nothing to choose; with 2 epochs all are members, with 4 not.
@pytest.mark.parametrize(
    ("which", "n_steps"), [("best", 2), ("best", 7), ("best", 13), ("last", 7), ("last", 13)]
)
def test_interrupted_it_resumes_to_the_same_members(tones, wholes, tmp_path, monkeypatch,
                                                    stop_after, which, n_steps):  # fmt: skip
    settings, out = settings_of(which), tmp_path / "run"
    stop_after(n_steps)
    with pytest.raises(KeyboardInterrupt):
        run(tones, out, *settings)
    if n_steps > 3:
        n_epochs = n_steps // 3
        assert len(export_best(out).bundle.members) == min(3, n_epochs)
    monkeypatch.undo()
    run(tones, out, *settings, resume=True)
    a, b = (load_file(folder / MODEL) for folder in (wholes[which].out, out))
    assert all(a[name].equal(b[name]) for name in a)
    a, b = (load_file(folder / CHECKPOINT) for folder in (wholes[which].out, out))
    assert all(a[name].equal(b[name]) for name in a)


def test_a_checkpoint_keeps_one_set_of_weights_per_member(tones, wholes):
    out = wholes["best"].out
    groups = {name.partition(".")[0] for name in load_file(out / CHECKPOINT)}
    assert groups == {"model", "average", "adam", "best", "best1", "best2"}
    with pytest.raises(SettingError, match="another data or settings"):
        run(tones, out, *settings_of("best")[1:], resume=True)


def test_a_checkpoint_of_an_older_version_has_the_initial_weights_before_an_epoch(tmp_path):
    weights = {"bias": torch.zeros(2)}
    Checkpoint(State(), weights, [weights], {}, {}, {}).write(tmp_path)
    assert Checkpoint.read(tmp_path).best == []
    assert Checkpoint.read(tmp_path).ema == {}


def test_what_cannot_be_exported_is_explained(tones, tmp_path, stop_after):
    stop_after(1)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(tones, out, "training.checkpoint_seconds=0")
    with pytest.raises(DataError, match="has not completed an epoch yet; resume it"):
        export_best(out)
    (out / RECORD).write_text("{}")
    with pytest.raises(DataError, match=r"run\.json is damaged"):
        export_best(out)
    (out / RECORD).unlink()
    with pytest.raises(DataError, match=r"no run\.json in .*older Earmark trained there, resume"):
        export_best(out)


def test_a_class_that_is_hardly_recognised_or_rare_is_warned_of(tones, tmp_path, caplog):
    caplog.set_level(logging.INFO, "earmark")
    tags = dict(read_tags(tones / "valid_weak.tsv"))
    files = sorted(tags)
    random.Random(3).shuffle(files)
    # Tags that have nothing to do with the sound: 12 clips of one class, 3 of the other.
    guessed = {file: (("low",) if n < 12 else ("high",) if n < 15 else ())
               for n, file in enumerate(files)}  # fmt: skip
    write_tags(tones / "guessed.tsv", guessed)
    detector = run(tones, tmp_path / "run", "training.max_epochs=1", valid="guessed.tsv")
    classes = detector.bundle.training["classes"]
    assert classes["low"]["n_positive"] == 12
    assert classes["low"]["roc_auc"] < 0.7
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned[0].startswith(
        f"Hardly recognised in the validation clips: low (AUC {classes['low']['roc_auc']:.2f})"
    )
    assert warned[1].startswith("Fewer than 5 validation clips: high (3).")
    assert "check their tags" in warned[0]


def test_a_class_that_is_recognised_is_not_warned_of(tones, tmp_path, caplog):
    caplog.set_level(logging.INFO, "earmark")
    more = [
        "training.ema_decay=0",
        "training.max_epochs=8",
        "training.learning_rate=0.01",
        "model.dropout=0",
    ]
    detector = run(tones, tmp_path / "run", *more)
    classes = detector.bundle.training["classes"]
    assert min(own["roc_auc"] for own in classes.values()) > 0.9
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    table = [record.getMessage() for record in caplog.records if "average precision" in record.msg
             or "average precision" in record.getMessage()]  # fmt: skip
    assert len(table) == 1
    assert validation_table(classes, detector.labels) in table[0]
    assert validation_table(classes, detector.labels) in describe_bundle(detector.bundle.describe())


def test_the_table_of_classes_fits_80_columns():
    own = {"n_positive": 12345, "average_precision": 0.5, "roc_auc": None, "f1": 1.0}
    labels = ["a very long label, that is longer than any table should be wide, and longer", "b"]
    lines = validation_table(dict.fromkeys(labels, own), labels).splitlines()
    assert {len(line) for line in lines} == {len(lines[0])}
    assert len(lines[0]) <= 80
