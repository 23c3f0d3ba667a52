"""Training: it learns, stops early, resumes bit for bit, and two processes follow one."""

import json
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tones import SMALL, write_tones

from earmark.data.batches import (
    epoch_order,
    group_by_length,
    read_batch,
    read_frame_targets,
    split_share,
    with_statistics,
)
from earmark.data.features import FeatureConfig, Normalise
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.store import FeatureStore, build_store
from earmark.errors import DataError, EarmarkWarning, SettingError
from earmark.formats.events import read_events
from earmark.inference.detector import load
from earmark.inference.model_file import save_bundle
from earmark.metrics.clip import clip_scores
from earmark.nn.loss import clip_loss
from earmark.plots import plot_history
from earmark.runtime.isa import bfloat16_works
from earmark.tensors import load_tensors, save_tensors
from earmark.training import loop
from earmark.training.api import PSEUDO_LABELS, train
from earmark.training.checkpoint import CHECKPOINT, HISTORY, Checkpoint, Epoch
from earmark.training.config import RunConfig, TrainingConfig
from earmark.training.finish import MODEL, TEACHER
from earmark.training.schedule import (
    best_epoch,
    epochs_left,
    is_finished,
    learning_rate,
    member_epochs,
)
from earmark.training.settings import Settings

ONE_THREAD = "training.threads=1"


@pytest.fixture(scope="module")
def tones(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tones")
    write_tones(folder, 24, seed=1, prefix="train", ragged=True)
    write_tones(folder, 8, seed=2, prefix="valid")
    return folder


def run(tones, out, *overrides, strong=None, teachers=(), **how):
    tables = (tones / "train_weak.tsv", tones / "valid_weak.tsv", tones / "audio", out)
    overrides = [*SMALL, ONE_THREAD, "training.max_epochs=3", *overrides]
    run_config = RunConfig(store=tones / "features", **how)
    return train(*tables, strong=strong, teachers=teachers, overrides=overrides, run=run_config)


@pytest.fixture(scope="module")
def trained(tones):
    """A finished training of three epochs; tests that change it take a copy."""
    run(tones, tones / "trained")
    return tones / "trained"


@pytest.fixture(scope="module")
def strong_teacher(tones):
    """A model file, trained from onsets and offsets until it finds them."""
    overrides = ["training.max_epochs=30", "training.patience=30", "training.schedule=cosine"]
    run(tones, tones / "strong", *overrides, strong=tones / "train_strong.tsv")
    return tones / "strong" / MODEL


@pytest.fixture(scope="module")
def by_devices(tones):
    """The same training in one process and in two: its folder, model and log."""
    logger, handler, done = logging.getLogger("earmark"), logging.NullHandler(), {}
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        for devices in (1, 2):
            messages = []
            handler.handle = lambda record, to=messages: to.append(record.getMessage())
            overrides = ["training.learning_rate=0.001", "training.batch_size=12"]
            overrides += ["training.micro_batch=4", "training.monitor=map"]
            out = tones / f"{devices} processes"
            done[devices] = (out, run(tones, out, *overrides, devices=devices), messages)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return done


def weights(out):
    """Return the tensors of a model; those of one network have their own names."""
    return {name.removeprefix("0."): value for name, value in load_file(out / MODEL).items()}


def history(out):
    return Checkpoint.read(out).state.history


def test_it_leaves_a_checkpoint_a_history_and_a_model(trained):
    detector = load(trained / MODEL)
    assert detector.labels == ("high", "low")
    lines = (trained / HISTORY).read_text().splitlines()
    assert lines[0].split("\t") == list(Epoch.__dataclass_fields__)
    assert len(lines) == 4
    losses = [row.valid_loss for row in history(trained)]
    assert detector.bundle.training["best_valid_loss"] == min(losses)
    assert not list(trained.glob(".*"))  # no temporary file is left


def test_the_callers_threads_and_random_numbers_are_left_alone(tones, tmp_path):
    torch.manual_seed(0)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    run(tones, tmp_path / "run", "training.max_epochs=1", "training.threads=2")
    assert torch.get_rng_state().equal(state)
    assert torch.get_num_threads() == threads


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tones, tmp_path):
    overrides = [
        "model.dropout=0.2",
        "augment.mixup=0.5",
        "augment.n_time_masks=1",
        "augment.gain_db=3",
        "training.max_epochs=2",
    ]
    run(tones, tmp_path / "a", *overrides)
    run(tones, tmp_path / "b", *overrides)
    run(tones, tmp_path / "c", *overrides, "training.seed=1")
    a, b, c = (weights(tmp_path / name) for name in "abc")
    assert all(a[name].equal(b[name]) for name in a)
    assert not all(a[name].equal(c[name]) for name in a)


COMMAND = """
import sys
from earmark import RunConfig, train
root, out, resume = sys.argv[1:4]
train(f"{root}/train_weak.tsv", f"{root}/valid_weak.tsv", f"{root}/audio", out,
      overrides=sys.argv[4:], run=RunConfig(store=f"{root}/features", resume=resume == "resume"))
"""


def test_killed_at_any_moment_it_resumes_to_the_same_weights(tones, tmp_path):
    overrides = [*SMALL, ONE_THREAD, "training.max_epochs=6", "model.dropout=0.2"]
    overrides += ["augment.mixup=0.5", "augment.time_shift=1.0", "training.schedule=plateau"]
    overrides += ["augment.eq_db=6", "training.ema_decay=0.9", "training.members=2"]
    overrides += [
        "training.checkpoint_seconds=0",
        "training.patience=20",
    ]  # a checkpoint every step

    def start(out, resume="new"):
        arguments = [sys.executable, "-c", COMMAND, str(tones), str(out), resume, *overrides]
        with (tmp_path / "errors.txt").open("w") as errors:
            return subprocess.Popen(arguments, stderr=errors)

    run(tones, tmp_path / "whole", *overrides)
    out, checkpoint = tmp_path / "killed", tmp_path / "killed" / CHECKPOINT
    rng = np.random.default_rng(0)
    kills = 0
    for _ in range(20):
        process = start(out, "resume" if checkpoint.exists() else "new")
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        # Wait until it has made at least one step, then kill it during another.
        while process.poll() is None:
            if checkpoint.exists() and checkpoint.stat().st_mtime_ns != before:
                time.sleep(rng.uniform(0, 0.3))
                break
            time.sleep(0.01)
        if process.poll() is not None:
            break
        if kills == 2:
            assert process.wait() == 0, (tmp_path / "errors.txt").read_text()
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills == 2, f"it was killed only {kills} times"
    assert process.returncode == 0, (tmp_path / "errors.txt").read_text()
    a, b = weights(tmp_path / "whole"), weights(out)
    assert all(a[name].equal(b[name]) for name in a)
    assert "1.classifier.weight" in a
    a, b = (load_file(tmp_path / name / CHECKPOINT) for name in ("whole", "killed"))
    assert all(a[name].equal(b[name]) for name in a)


def test_resuming_with_other_settings_or_data_is_refused(tones, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(
        SettingError,
        match=r"already contains a training; resume it with run=RunConfig\(resume=True\)",
    ):
        run(tones, tmp_path / "run")
    with pytest.raises(SettingError, match="another data or settings"):
        run(tones, tmp_path / "run", "training.seed=5", resume=True)
    flipped = bytearray((tmp_path / "run" / CHECKPOINT).read_bytes())
    flipped[-100] ^= 1
    for damaged in (b"nonsense", bytes(flipped)):
        (tmp_path / "run" / CHECKPOINT).write_bytes(damaged)
        with pytest.raises(DataError, match="is damaged"):
            run(tones, tmp_path / "run", resume=True)


def test_resuming_without_a_checkpoint_is_a_fresh_start(tones, trained, tmp_path):
    run(tones, tmp_path / "stopped", resume=True)
    a, b = weights(trained), weights(tmp_path / "stopped")
    assert all(a[name].equal(b[name]) for name in a)


def test_resuming_writes_the_history_that_was_lost_in_a_kill(tones, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    before = (tmp_path / "run" / HISTORY).read_text()
    (tmp_path / "run" / HISTORY).unlink()
    run(tones, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / HISTORY).read_text() == before


def test_the_weights_of_the_best_epoch_are_saved_not_the_last_ones(tones, tmp_path):
    run(tones, tmp_path / "run", "training.max_epochs=6", "training.learning_rate=0.05")
    checkpoint = Checkpoint.read(tmp_path / "run")
    rows = checkpoint.state.history
    assert best_epoch(rows) < len(rows) - 1, "choose settings under which it gets worse"
    saved = weights(tmp_path / "run")
    assert all(saved[name].equal(checkpoint.best[0][name]) for name in saved)
    assert not all(saved[name].equal(checkpoint.model[name]) for name in saved)


@pytest.mark.parametrize(
    "overrides", [["training.precision=64-true"], ["training.precision=bf16-mixed"]]
)
def test_other_precisions_train_as_well(tones, tmp_path, overrides):
    if "bf16" in overrides[0] and not bfloat16_works():
        pytest.skip("this CPU cannot compute in bfloat16")
    assert run(tones, tmp_path / "run", "training.max_epochs=1", *overrides).labels == (
        "high",
        "low",
    )


@pytest.mark.parametrize("devices", [1, 2])
def test_a_training_that_diverges_raises_from_any_process(tones, tmp_path, devices):
    with pytest.raises(
        SettingError, match=r"^Training diverged .* smaller training\.learning_rate"
    ):
        run(tones, tmp_path / "run", "training.learning_rate=1e30", devices=devices)


def test_a_damaged_checkpoint_is_reported_from_spawned_processes_as_well(tones, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / CHECKPOINT).write_bytes(b"nonsense")
    with pytest.raises(DataError, match="is damaged"):
        run(tones, tmp_path / "run", devices=2, resume=True)


def test_a_device_that_does_not_exist_gives_one_clear_message(tones, tmp_path):
    with pytest.raises(SettingError, match="There is no device 'nonsense'"):
        run(tones, tmp_path / "run", device="nonsense")


def test_training_and_validation_may_have_files_of_the_same_names(tmp_path):
    for part, seed in (("one", 1), ("two", 2)):
        write_tones(tmp_path / part, 12, seed=seed, prefix="clip")
    detector = train(
        tmp_path / "one" / "clip_weak.tsv",
        tmp_path / "two" / "clip_weak.tsv",
        tmp_path / "one" / "audio",
        tmp_path / "run",
        valid_audio=tmp_path / "two" / "audio",
        overrides=[*SMALL, ONE_THREAD, "training.max_epochs=1"],
    )
    assert detector.bundle.training["n_valid"] == 12
    assert detector.bundle.window == 4.0


def test_resuming_a_finished_training_changes_nothing(tones, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    before = weights(tmp_path / "run")
    run(tones, tmp_path / "run", resume=True)
    after = weights(tmp_path / "run")
    assert all(before[name].equal(after[name]) for name in before)


def test_it_stops_when_validation_gets_no_better(tones, tmp_path):
    run(tones, tmp_path / "run", "training.max_epochs=50", "training.patience=2",
        "training.learning_rate=1e-9")  # fmt: skip
    rows = history(tmp_path / "run")
    assert len(rows) < 50
    assert len(rows) == best_epoch(rows) + 1 + 2


def test_the_weights_of_the_last_epoch_are_saved_on_request(tones, tmp_path):
    run(tones, tmp_path / "run", "training.max_epochs=6", "training.checkpoint=last",
        "training.learning_rate=0.1")  # fmt: skip
    checkpoint = Checkpoint.read(tmp_path / "run")
    assert best_epoch(checkpoint.state.history) < 5  # with so large a learning rate
    saved = weights(tmp_path / "run")
    assert all(saved[name].equal(checkpoint.model[name]) for name in saved)
    assert all(value.equal(checkpoint.model[name]) for name, value in checkpoint.best[0].items())


def test_two_processes_follow_the_losses_of_one(tones, tmp_path):
    """From a plain script, as a user would: no `if __name__ == "__main__"` is needed."""
    script = Path(tmp_path / "two.py")
    script.write_text(
        "import sys\n"
        "from earmark import RunConfig, train\n"
        "root, out, devices = sys.argv[1:4]\n"
        "train(f'{root}/train_weak.tsv', f'{root}/valid_weak.tsv', f'{root}/audio', out,\n"
        "      overrides=sys.argv[4:],\n"
        "      run=RunConfig(store=f'{root}/features', devices=int(devices)))\n"
    )
    overrides = [*SMALL, ONE_THREAD, "training.max_epochs=3", "training.learning_rate=0.001"]
    overrides += ["training.batch_size=9"]  # so that the shares of two processes are unequal
    run(tones, tmp_path / "1", *overrides)
    done = subprocess.run(
        [sys.executable, str(script), str(tones), str(tmp_path / "2"), "2", *overrides],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    losses = []
    for devices in ("1", "2"):
        checkpoint = Checkpoint.read(tmp_path / devices)
        assert checkpoint.requirements["number of processes"] == devices
        losses.append([(e.train_loss, e.valid_loss) for e in checkpoint.state.history])
    np.testing.assert_allclose(*losses, rtol=2e-3)


def test_the_command_runs_under_torchrun(tones, tmp_path):
    overrides = [*SMALL, ONE_THREAD, "training.max_epochs=2"]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", "localhost:0", "-m", "earmark", "train"]
    tables = ["--train", tones / "train_weak.tsv", "--valid", tones / "valid_weak.tsv"]
    tables += ["--audio", tones / "audio", "--store", tones / "features", "--out", tmp_path / "run"]
    sets = [part for override in overrides for part in ("--set", override)]
    done = subprocess.run(
        [sys.executable, *launcher, *map(str, tables), "--devices", "2", *sets],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model.earmark: after 2 epochs") == 1
    assert done.stderr.count("earmark: epoch 1 (2/2)") == 1
    assert Checkpoint.read(tmp_path / "run").requirements["number of processes"] == "2"


def test_balanced_sampling_gives_rare_classes_as_many_clips():
    targets = torch.zeros(100, 2)
    targets[:, 0] = 1
    targets[:5] = torch.tensor([0.0, 1.0])
    order = epoch_order(targets, 0, 3, balanced=True)
    assert len(order) == 100
    assert sum(row < 5 for row in order) == 50
    plain = epoch_order(targets, 0, 3)
    assert sorted(plain) == list(range(100))
    assert plain != epoch_order(targets, 0, 4)


def test_balanced_sampling_treats_clips_without_tags_as_a_class():
    targets = torch.zeros(10, 1)
    targets[0] = 1
    order = epoch_order(targets, 0, 0, balanced=True)
    assert order.count(0) == 5


def test_grouped_batches_have_the_same_clips_with_less_padding():
    rng = np.random.default_rng(0)
    lengths = rng.choice([9, 12, 15], 1000).tolist()
    order = epoch_order(torch.zeros(1000, 1), 0, 3)
    grouped = group_by_length(order, lengths, 8, 0, 3)
    for start in range(0, 1000, 400):  # the same clips in the same part of the epoch
        assert sorted(grouped[start : start + 400]) == sorted(order[start : start + 400])
    batches = [[lengths[row] for row in grouped[at : at + 8]] for at in range(0, 1000, 8)]
    assert sum(len(set(batch)) > 1 for batch in batches) <= 2 * 3  # where one length ends
    first = [batch[0] for batch in batches[:50]]
    assert first != sorted(first)  # batches are in random order
    assert grouped == group_by_length(order, lengths, 8, 0, 3)
    assert grouped != group_by_length(order, lengths, 8, 0, 4)


def test_an_incomplete_batch_stays_the_last_one():
    grouped = group_by_length(list(range(11)), list(range(11)), 4, 0, 0)
    assert grouped[8:] == [8, 9, 10]
    assert {tuple(grouped[:4]), tuple(grouped[4:8])} == {(0, 1, 2, 3), (4, 5, 6, 7)}


def test_a_training_grouped_by_length_pads_less(tones, tmp_path, monkeypatch):
    padded = []

    def read(*args):
        clips = read_batch(*args)
        padded.append(0 if clips[1] is None else int((~clips[1]).sum()))
        return clips

    monkeypatch.setattr(loop, "read_batch", read)
    n_padded = []
    for group in ("false", "true"):
        padded.clear()
        own = ("batch_size=3", "max_epochs=2", f"group_by_length={group}")
        train(
            tones / "train_weak.tsv",
            valid=tones / "valid_weak.tsv",
            audio=tones / "audio",
            out=tmp_path / group,
            overrides=[*SMALL, ONE_THREAD, *(f"training.{x}" for x in own)],
        )
        n_padded.append(sum(padded))
    assert n_padded[1] < n_padded[0] / 2


def test_learning_rates():
    config = TrainingConfig(schedule="cosine", max_epochs=10, warmup=1.0)
    rates = [learning_rate(config, p, []) for p in (0.0, 0.5, 1.0, 5.0, 10.0)]
    assert rates[0] < rates[1] < rates[2]
    assert rates[2] > rates[3] > rates[4] == pytest.approx(1e-5)
    rows = rows_of(valid_loss=[3, 2, 2, 2, 2, 1, 1, 1, 1])
    plateau = TrainingConfig(schedule="plateau", plateau=3)
    assert learning_rate(plateau, 0, rows[:4]) == 1e-3
    assert learning_rate(plateau, 0, rows[:5]) == 5e-4
    assert learning_rate(plateau, 0, rows) == 2.5e-4
    every_second = replace(plateau, plateau=2)
    assert learning_rate(every_second, 0, rows[:3]) == 1e-3
    assert learning_rate(every_second, 0, rows[:4]) == 5e-4


def test_a_cosine_passes_the_middle_and_an_exponential_schedule_falls_in_steps():
    cosine = TrainingConfig(schedule="cosine", max_epochs=10)
    assert learning_rate(cosine, 0.0, []) == pytest.approx(1e-3)
    assert learning_rate(cosine, 5.0, []) == pytest.approx(1e-3 * (0.01 + 0.99 / 2))
    steps = TrainingConfig(schedule="exponential", decay=0.5, decay_epochs=3)
    rates = [learning_rate(steps, progress, []) for progress in (0.0, 2.9, 3.0, 5.9, 6.0, 7.5)]
    assert rates == [1e-3, 1e-3, 5e-4, 5e-4, 2.5e-4, 2.5e-4]


def rows_of(**values):
    """Rows of a history with some columns given, and 0 in the others."""
    n_epochs = len(next(iter(values.values())))
    zero = dict.fromkeys(Epoch.__dataclass_fields__, 0)
    columns = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return [Epoch(**(zero | columns[i] | {"epoch": i})) for i in range(n_epochs)]


def test_early_stopping_waits_for_the_smallest_number_of_steps():
    rows = rows_of(valid_loss=[1, 2, 3, 4, 5])
    config = TrainingConfig(batch_size=10, patience=2, min_steps=20)
    assert is_finished(rows[:3], config, n_clips=1000)  # 100 steps per epoch
    assert not is_finished(rows[:2], config, n_clips=1000)
    assert not is_finished(rows[:4], config, n_clips=40)  # 4 steps per epoch
    assert is_finished(rows[:5], config, n_clips=40)
    assert epochs_left(rows[:3], config, n_clips=40) == 2
    assert epochs_left(rows[:3], replace(config, max_epochs=4), n_clips=40) == 1


def test_few_clips_train_for_more_epochs_and_the_log_says_so(tones, tmp_path, caplog):
    caplog.set_level(logging.INFO, "earmark")
    more = ["training.max_epochs=1", "training.patience=1", "training.min_steps=8"]
    detector = run(tones, tmp_path / "run", *more, "training.learning_rate=1e-9")
    assert detector.bundle.training["n_epochs"] == 3  # 24 clips are 3 steps
    assert "24 clips are 3 steps per epoch: up to 3 epochs instead of 1" in caplog.text


def test_the_monitor_decides_best_epoch_early_stopping_and_plateau():
    rows = rows_of(valid_loss=[3, 2, 1], valid_map=[0.1, 0.9, 0.8], valid_f1=[0.5, 0.4, 0.3])
    assert [best_epoch(rows, monitor) for monitor in ("loss", "map", "f1")] == [2, 1, 0]
    assert not is_finished(rows, TrainingConfig(patience=2))
    assert is_finished(rows, TrainingConfig(patience=2, monitor="f1"))
    halved = TrainingConfig(schedule="plateau", plateau=1, monitor="f1")
    assert learning_rate(halved, 3, rows) == halved.learning_rate / 4
    by_loss = replace(halved, plateau_monitor="loss")
    assert learning_rate(by_loss, 3, rows) == halved.learning_rate
    assert (best_epoch(rows, by_loss.monitor), is_finished(rows, by_loss)) == (0, False)
    with pytest.raises(SettingError, match=r"no training\.plateau_monitor 'los'; did you mean"):
        TrainingConfig(plateau_monitor="los")
    with pytest.raises(SettingError, match=r"training\.monitor='map' is undefined in epoch 0"):
        best_epoch(rows_of(valid_map=[math.nan]), "map")


@pytest.mark.parametrize("monitor", ["map", "f1"])
def test_of_epochs_with_the_same_metric_those_with_the_lowest_loss_count(monitor):
    losses = [0.9, 0.8, 0.5, 0.7, 0.5, 0.6]
    rows = rows_of(**{"valid_loss": losses, f"valid_{monitor}": [0.0] * 6})
    assert best_epoch(rows, monitor) == 4
    config = TrainingConfig(monitor=monitor, members=3, patience=2)
    assert member_epochs(rows, config) == [4, 2, 5]
    better = rows_of(**{"valid_loss": losses, f"valid_{monitor}": [0, 0.1, 0, 0, 0, 0.1]})
    assert member_epochs(better, config) == [5, 1, 4]
    # A network whose outputs no longer change does stop: 2 is as good as the best.
    assert [is_finished(rows[:n], config) for n in range(1, 6)] == [False] * 4 + [True]
    of_loss = TrainingConfig(members=2)
    assert member_epochs(rows, of_loss) == [2, 4]  # of the same loss, the first


def test_normalised_training_clips_have_mean_0_and_deviation_1(tones, tmp_path):
    clips = Manifest.read(tones / "train_weak.tsv", tones / "audio")
    config = FeatureConfig(sample_rate=8000, n_mels=16, f_max=4000.0)
    store = build_store(tmp_path / "store", clip_paths(clips), config)
    fitted = with_statistics(config, store, clips)
    normalise = Normalise(fitted.mean, fitted.std)
    frames = [normalise(read_batch(store, clips, [row])[0])[0] for row in range(len(clips))]
    every = torch.cat(frames)
    torch.testing.assert_close(every.mean(0), torch.zeros(16), atol=1e-2, rtol=0)
    torch.testing.assert_close(every.std(0), torch.ones(16), atol=1e-2, rtol=0)


def test_a_clip_that_cannot_be_read_is_skipped_with_a_warning(tmp_path, caplog):
    caplog.set_level(logging.INFO, "earmark")
    folder = tmp_path / "data"
    write_tones(folder, 12, seed=5, prefix="train")
    (folder / "audio" / "train_003.wav").write_bytes(b"RIFF, but no audio")
    (folder / "audio" / "train_005.wav").unlink()
    with pytest.warns(EarmarkWarning) as caught:
        detector = train(
            folder / "train_weak.tsv",
            audio=folder / "audio",
            out=tmp_path / "run",
            overrides=[*SMALL, ONE_THREAD, "training.max_epochs=1"],
        )
    missing, unreadable = (str(warning.message) for warning in caught)
    assert missing.startswith("1 of 12 training clips are missing")
    assert missing.endswith("train_005.wav.")
    assert unreadable.startswith("1 of 11 clips cannot be read and are skipped")
    assert "train_003.wav" in unreadable
    assert all(warning.filename == __file__ for warning in caught)
    messages = [record.getMessage() for record in caplog.records]
    assert "3 of 11 clips are held out for validation." in messages
    assert any(message.startswith("epoch 0 (1/1)  loss ") for message in messages)
    summary = detector.bundle.training
    assert summary["n_train"] + summary["n_valid"] == 10


@pytest.mark.parametrize("devices", [1, 2])
def test_epochs_are_logged_by_the_first_process_only(by_devices, devices):
    _, _, messages = by_devices[devices]
    lines = [message[:13] for message in messages if "loss" in message]
    assert lines == ["epoch 0 (1/3)", "epoch 1 (2/3)", "epoch 2 (3/3)"]


def test_settings_are_complete_or_built_from_preset_config_and_overrides(tones, tmp_path):
    tables = (tones / "train_weak.tsv", tones / "valid_weak.tsv", tones / "audio", tmp_path)
    settings = Settings.load("fast", overrides=[*SMALL, ONE_THREAD, "training.max_epochs=1"])
    run_config = RunConfig(store=tones / "features")
    assert train(*tables, settings=settings, run=run_config).labels == ("high", "low")
    for more in ({"preset": "fast"}, {"config": "c.toml"}, {"overrides": ["training.seed=1"]}):
        with pytest.raises(SettingError, match=f"cannot be combined with {next(iter(more))}="):
            train(*tables, settings=settings, **more)
    with pytest.raises(SettingError, match=r"pass settings such as .* overrides="):
        train(*tables, settings=["training.seed=1"])


@pytest.mark.parametrize("devices", [1, 2])
def test_validation_metrics_are_those_of_the_saved_network(tones, by_devices, devices):
    out, detector, _ = by_devices[devices]
    summary, features = detector.bundle.training, detector.bundle.feature_config
    clips = Manifest.read(tones / "valid_weak.tsv", tones / "audio")
    store = build_store(tones / "features", clip_paths(clips), features.raw)
    scores = detector.ensemble.predict_clips(clips, [store])
    probs = np.stack([own.clip_level() for own in scores])
    tags = dict(zip(clips.files, clips.tags, strict=True))
    estimate = {
        file: [label for label, p in zip(clips.labels, row, strict=True) if p >= 0.5]
        for file, row in zip(clips.files, probs, strict=True)
    }
    by_file = dict(zip(clips.files, probs, strict=True))
    scores = clip_scores(tags, estimate, by_file, clips.labels, empty_as_zero=True)
    assert summary["best_valid_map"] == pytest.approx(scores.mean_average_precision)
    assert summary["best_valid_f1"] == pytest.approx(scores.f_measure)
    rows = history(out)
    assert summary["best_valid_map"] == max(row.valid_map for row in rows)


def test_without_a_validation_tag_only_the_loss_can_be_monitored(tones, tmp_path):
    (tmp_path / "valid.tsv").write_text("filename\tevent_labels\nvalid_000.wav\t\n")
    tables = (tones / "train_weak.tsv", tmp_path / "valid.tsv", tones / "audio")
    overrides = [*SMALL, ONE_THREAD, "training.max_epochs=1"]
    run_config = RunConfig(store=tones / "features")
    detector = train(*tables, tmp_path / "loss", overrides=overrides, run=run_config)
    assert math.isnan(detector.bundle.training["best_valid_map"])
    with pytest.raises(SettingError, match="no validation clip with a tag"):
        train(*tables, tmp_path / "f1", overrides=[*overrides, "training.monitor=f1"],
              run=run_config)  # fmt: skip


def test_checkpoint_and_history_from_before_these_metrics_resume_and_plot(tones, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "old")
    text, tensors = load_tensors(tmp_path / "old" / CHECKPOINT, "checkpoint")
    values = json.loads(text)
    for row in values["state"]["history"]:
        del row["valid_map"], row["valid_f1"]
    values["state"] |= {"best_loss": 0.5, "best_epoch": 1, "finished": True}
    save_tensors(tmp_path / "old" / CHECKPOINT, tensors, json.dumps(values))
    run(tones, tmp_path / "old", resume=True)
    a, b = weights(trained), weights(tmp_path / "old")
    assert all(a[name].equal(b[name]) for name in a)
    path = tmp_path / "history.tsv"
    path.write_text("epoch\ttrain_loss\tvalid_loss\n0\t0.7\t0.6\n1\t0.5\t0.4\n")
    assert len(plot_history(path).axes) == 1
    assert len(plot_history(trained / HISTORY).axes) == 2


def test_a_resume_reads_the_checkpoint_once(tones, trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "run")
    reads = []
    monkeypatch.setattr(
        "earmark.training.checkpoint.load_tensors",
        lambda path, kind: reads.append(path) or load_tensors(path, kind),
    )
    run(tones, tmp_path / "run", resume=True)
    assert reads == [tmp_path / "run" / CHECKPOINT]


def test_tensorboard_logs_are_written_on_request(tones, tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra 'tb'")
    run(tones, tmp_path / "run", "training.max_epochs=1", tensorboard=True)
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_several_machines_need_a_launcher(tones, tmp_path):
    with pytest.raises(SettingError, match="torchrun or SLURM"):
        run(tones, tmp_path / "run", nodes=2)


@pytest.mark.parametrize("n_processes", [1, 2, 3])
@pytest.mark.parametrize(("n_clips", "size"), [(9, 4), (128, 16), (5, 1), (7, 100), (6, 0), (3, 2)])
def test_micro_batches_are_the_same_clips_in_however_many_processes(n_clips, size, n_processes):
    rows = list(range(n_clips))
    pieces = []
    for rank in range(n_processes):
        mine = rows[rank::n_processes]
        cuts = [mine[piece] for piece in split_share(n_clips, size, rank, n_processes)]
        assert [row for cut in cuts for row in cut] == mine
        assert all(cuts), "every process has a clip in every micro-batch"
        pieces.append(cuts)
    together = [sorted(chain(*parts)) for parts in zip(*pieces, strict=True)]
    alone = [rows[piece] for piece in split_share(n_clips, size)]
    if len(together) == len(alone):  # else there are more processes than clips for all of them
        assert together == alone
    assert max(map(len, alone)) <= (size or n_clips)


def test_micro_batches_give_the_gradient_of_the_whole_batch(tones, tmp_path, monkeypatch):
    """But for batch norm, which is made to forget the batch here."""
    monkeypatch.setattr("earmark.nn.layers.MaskedBatchNorm.forward", lambda self, maps, mask: maps)
    overrides = ["training.max_epochs=1", "training.batch_size=24"]
    run(tones, tmp_path / "whole", *overrides)
    run(tones, tmp_path / "parts", *overrides, "training.micro_batch=5")
    a, b = (Checkpoint.read(tmp_path / name) for name in ("whole", "parts"))
    expected = a.state.history[0].train_loss
    assert b.state.history[0].train_loss == pytest.approx(expected, rel=1e-5)
    for index, moments in a.optimizer.items():  # Adam's mean of the only gradient
        actual = b.optimizer[index]["exp_avg"]
        torch.testing.assert_close(actual, moments["exp_avg"], atol=1e-7, rtol=1e-3)


def test_micro_batches_train_and_repeat_bit_for_bit(tones, tmp_path):
    overrides = ["training.micro_batch=3", "model.dropout=0.2"]
    run(tones, tmp_path / "a", *overrides)
    run(tones, tmp_path / "b", *overrides)
    a, b = (weights(tmp_path / name) for name in "ab")
    assert all(a[name].equal(b[name]) for name in a)
    rows = history(tmp_path / "a")
    assert rows[-1].train_loss < rows[0].train_loss


def test_two_processes_follow_one_in_micro_batches_too(by_devices):
    rows = [history(out) for out, _, _ in by_devices.values()]
    losses = [[(e.train_loss, e.valid_loss) for e in own] for own in rows]
    np.testing.assert_allclose(*losses, rtol=2e-3)


def test_a_moving_average_changes_the_saved_weights_and_not_the_steps(tones, trained, tmp_path):
    run(tones, tmp_path, "training.ema_decay=0.9")
    ours, plain = (weights(out)["classifier.weight"] for out in (tmp_path, trained))
    assert not torch.equal(ours, plain)
    losses = [[row.train_loss for row in history(out)] for out in (tmp_path, trained)]
    assert losses[0] == losses[1]


def test_a_moving_average_forgets_the_initial_weights_over_the_first_steps_of_the_training(
    tones, tmp_path, monkeypatch
):
    """The decay after n steps is (1 + n) / (10 + n), up to its value; n goes on over epochs."""
    decays, update = [], loop._MovingAverage.update

    def record(self, model, n_steps):
        one = torch.nn.Linear(1, 1)
        twin = loop._MovingAverage(one, self.decay)
        with torch.no_grad():
            one.weight.fill_(1.0)
            twin.model.weight.fill_(0.0)
        update(twin, one, n_steps)
        decays.append(1 - twin.model.weight.item())
        update(self, model, n_steps)

    monkeypatch.setattr(loop._MovingAverage, "update", record)
    run(tones, tmp_path, "training.ema_decay=0.5", "training.batch_size=5", "training.max_epochs=2")
    assert len(decays) == 2 * 5
    assert decays == pytest.approx([min(0.5, (1 + n) / (10 + n)) for n in range(10)], abs=1e-6)


def test_a_last_batch_of_a_single_clip_is_learned_from(tones, tmp_path, monkeypatch):
    """Only a batch with fewer clips than processes is left out."""
    sizes, step = [], loop._Trainer.step
    monkeypatch.setattr(
        loop._Trainer, "step", lambda self, rows: sizes.append(len(rows)) or step(self, rows)
    )
    run(tones, tmp_path, "training.batch_size=23", "training.max_epochs=1")
    assert sizes == [23, 1]


def test_a_table_of_onsets_and_offsets_gives_frame_level_training(tones, trained, strong_teacher):
    strong = load(strong_teacher)
    assert strong.bundle.training["supervision"] == "strong"
    assert load(trained / MODEL).bundle.training["supervision"] == "weak"
    clips = Manifest.read(tones / "valid_strong.tsv", tones / "audio")
    events = read_events(tones / "valid_strong.tsv")
    n_wrong = n_active = 0
    for file, path in zip(clips.files, clips.paths, strict=True):
        probs = strong.frame_scores(path).scores
        timed = clips.take([clips.files.index(file)]).with_events(events)
        active = read_frame_targets(timed, strong.grid, [0], len(probs))[0].numpy() > 0.5
        n_wrong += ((probs >= 0.5) != active).sum()
        n_active += active.sum()
    assert n_wrong < n_active / 4


def test_training_events_must_be_of_the_training_clips(tones, tmp_path):
    with pytest.raises(DataError, match="24 of 24 clips are not in the table of events"):
        run(tones, tmp_path, strong=tones / "valid_strong.tsv")


@pytest.mark.parametrize("weight", ["level_loss_weight", "contrast_weight"])
def test_losses_of_levels_and_contrast_change_what_is_learned_from_tags_alone(
    tones, tmp_path, weight
):
    extra = [f"training.{weight}=0.5", "model.stages=[5, 5]", "training.max_epochs=1"]
    with_it = run(tones, tmp_path / "with", *extra)
    without = run(tones, tmp_path / "without", *extra[1:])
    losses = [x.bundle.training["best_valid_loss"] for x in (with_it, without)]
    assert np.isfinite(losses).all() and losses[0] != losses[1]
    with pytest.raises(SettingError, match=r"are for training from tags; set them to 0 where"):
        run(tones, tmp_path / "strong", *extra, strong=tones / "train_strong.tsv")
    for value in (-1, 2):
        if (weight, value) != ("contrast_weight", 2):
            with pytest.raises(SettingError, match=rf"training\.{weight} must be .* Got {value}"):
                TrainingConfig(**{weight: value})


def test_a_loss_of_levels_needs_a_hierarchy():
    with pytest.raises(SettingError, match=r"level_loss_weight needs hierarchical pooling; set"):
        Settings.load("fast", overrides=["training.level_loss_weight=0.5", "model.stages=[]"])


def test_pseudo_labels_are_the_teachers_frame_level_scores_limited_to_the_tags(
    tones, strong_teacher, tmp_path
):
    model = strong_teacher
    overrides = ["training.max_epochs=30", "training.patience=30", "training.schedule=cosine"]
    overrides += ["training.frame_loss_weight=1.0", "training.pseudo_labels=scores"]
    run(tones, tmp_path / "student", *overrides, teachers=[model])
    labels = np.load(tmp_path / "student" / PSEUDO_LABELS)
    clips = Manifest.read(tones / "train_weak.tsv", tones / "audio")
    teacher, begin = load(model), 0
    for row, path in enumerate(clips.paths):
        probs = teacher.frame_scores(path).scores * clips.targets[row].numpy()
        ours = labels[begin : begin + len(probs)]
        np.testing.assert_allclose(ours, probs, atol=5e-3)  # features are in half precision
        begin += len(probs)
    assert begin == len(labels)
    # A student of pseudo-labels alone localizes as well as its teacher, from clip tags.
    student = load(tmp_path / "student" / MODEL)
    wave_file = clips.paths[int(clips.targets[:, 0].argmax())]
    one, other = (each.frame_scores(wave_file).scores[:, 0] for each in (teacher, student))
    assert np.corrcoef(one, other)[0, 1] > 0.9


def test_frame_level_targets_come_from_events_or_from_teachers(tones, tmp_path):
    with pytest.raises(SettingError, match="strong= or teachers=, not both"):
        run(tones, tmp_path, strong=tones / "train_strong.tsv", teachers=[tmp_path / MODEL])
    with pytest.raises(SettingError, match="generations=2 trains its own teachers"):
        run(tones, tmp_path, "training.generations=2", teachers=[tmp_path / MODEL])


def test_pseudo_labels_are_the_teachers_events_of_the_tags(tones, strong_teacher, tmp_path):
    model = strong_teacher
    run(tones, tmp_path / "student", "training.max_epochs=1", teachers=[model])
    labels = np.load(tmp_path / "student" / PSEUDO_LABELS)
    assert set(np.unique(labels)) == {0, 1}
    clips = Manifest.read(tones / "train_weak.tsv", tones / "audio")
    clips = clips.with_events(read_events(tones / "train_strong.tsv"))
    begin = n_wrong = 0
    teacher = load(model)
    for row, path in enumerate(clips.paths):
        n_frames = len(teacher.frame_scores(path))
        real = read_frame_targets(clips, teacher.grid, [row], n_frames)[0].numpy()
        found = labels[begin : begin + n_frames]
        begin += n_frames
        # Every tag has an event, no other class has one, and they lie where the sounds are.
        assert (found.any(axis=0) == (clips.targets[row].numpy() > 0)).all()
        n_wrong += (found != real).sum()
    assert begin == len(labels)
    assert n_wrong < 0.1 * labels.size


def test_a_second_generation_learns_from_the_first(tones, tmp_path):
    overrides = ("training.max_epochs=2", "training.seed=3")
    run(tones, tmp_path / "first", *overrides)
    run(tones, tmp_path / "second", *overrides, teachers=[tmp_path / "first" / MODEL])
    out = tmp_path / "both"
    run(tones, out, *overrides, "training.generations=2")
    for name, same in ((TEACHER, "first"), ("", "second")):
        one, other = weights(out / name), weights(tmp_path / same)
        assert all(torch.equal(one[key], other[key]) for key in one)
    # A finished teacher is not trained again, and one of other settings is not used.
    written = (out / TEACHER / MODEL).read_bytes()
    run(tones, out, *overrides, "training.generations=2", resume=True)
    assert (out / TEACHER / MODEL).read_bytes() == written
    (out / CHECKPOINT).unlink()
    with pytest.raises(SettingError, match="another data or settings"):
        run(tones, out, overrides[0], "training.seed=4", "training.generations=2", resume=True)


def test_pseudo_labels_are_kept_when_a_training_resumes(tones, trained, strong_teacher, tmp_path):
    student, models = tmp_path / "student", [trained / MODEL, strong_teacher]
    run(tones, student, "training.max_epochs=1", teachers=models[:1])
    written = (student / PSEUDO_LABELS).stat().st_mtime_ns
    run(tones, student, "training.max_epochs=1", teachers=models[:1], resume=True)
    assert (student / PSEUDO_LABELS).stat().st_mtime_ns == written
    with pytest.raises(SettingError, match=r"pseudo_labels\.npy was computed by other teachers"):
        run(tones, student, "training.max_epochs=1", teachers=models[1:], resume=True)
    assert (student / PSEUDO_LABELS).stat().st_mtime_ns == written
    content = (student / PSEUDO_LABELS).read_bytes()
    (student / PSEUDO_LABELS).unlink()
    run(tones, student, "training.max_epochs=1", teachers=models[:1], resume=True)
    assert (student / PSEUDO_LABELS).read_bytes() == content


def test_a_teacher_of_other_classes_is_refused(tones, trained, tmp_path):
    bundle = load(trained / MODEL).bundle
    other = replace(bundle, labels=("a", "b"), decoding=replace(bundle.decoding, labels=("a", "b")))
    path = save_bundle(other, tmp_path / "other.earmark")
    with pytest.raises(SettingError, match="must have the labels"):
        run(tones, tmp_path / "student", teachers=[path])


def test_micro_batches_move_running_statistics_as_far_as_the_whole_batch(tones, tmp_path):
    overrides = ["training.batch_size=24", "training.max_epochs=1", "training.micro_batch={}"]
    moved = {}
    for size in (0, 6):
        run(tones, tmp_path / str(size), *(override.format(size) for override in overrides))
        moved[size] = weights(tmp_path / str(size))["blocks.0.0.norm.running_var"]
    # The momentum is 0.1 per step; applied to each of four micro-batches, it would be 0.34.
    torch.testing.assert_close(1 - moved[6], 1 - moved[0], rtol=0.15, atol=0)


def test_the_validated_weights_are_the_saved_ones(tones, tmp_path):
    detector = run(tones, tmp_path, "training.ema_decay=0.9", "training.max_epochs=4")
    clips = Manifest.read(tones / "valid_weak.tsv", tones / "audio")
    store = build_store(tones / "features", clip_paths(clips), detector.bundle.feature_config.raw)
    scores = detector.ensemble.predict_clips(clips, [store])
    probs = np.stack([own.clip_level() for own in scores])
    loss = clip_loss(torch.from_numpy(probs), clips.targets).item()
    assert loss == pytest.approx(detector.bundle.training["best_valid_loss"], abs=1e-5)


def test_a_frame_loss_weight_of_0_makes_teachers_irrelevant(tones, trained, tmp_path):
    teachers = [trained / MODEL]
    run(tones, tmp_path / "student", "training.frame_loss_weight=0.0", teachers=teachers)
    run(tones, tmp_path / "half", teachers=teachers)
    alone, student, half = map(weights, (trained, tmp_path / "student", tmp_path / "half"))
    torch.testing.assert_close(student, alone, rtol=1e-3, atol=1e-5)
    assert (half["classifier.weight"] - alone["classifier.weight"]).abs().max() > 1e-3


def test_training_and_tuning_score_a_clip_alike(tones, trained):
    """They share the inference path; the feature store alone rounds, to half precision."""
    detector = load(trained / MODEL)
    clips = Manifest.read(tones / "valid_weak.tsv", tones / "audio")
    store = FeatureStore.open(tones / "features")
    stored = detector.ensemble.predict_clips(clips, [store])
    for path, scores in zip(clips.paths, stored, strict=True):
        own = detector.frame_scores(path)
        np.testing.assert_allclose(scores.scores[: len(own)], own.scores, rtol=0, atol=0.01)
        np.testing.assert_allclose(scores.clip_level(), own.clip_level(), rtol=0, atol=0.01)
