"""Training: it learns, it stops, it resumes to the bit, and two processes follow one."""

import os
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
from earmark.inference.predictions import predict_clips
from safetensors.torch import load_file
from tones import SMALL, write_tones

from earmark.audio.decode import read_audio
from earmark.data.batches import (
    epoch_order,
    read_batch,
    read_frame_targets,
    split_share,
    with_statistics,
)
from earmark.data.features import FeatureConfig, Normalise, log_mel
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.store import build_store
from earmark.errors import DataError, SettingError
from earmark.formats.events import read_events
from earmark.inference.detector import load
from earmark.inference.model_file import save_bundle
from earmark.nn.loss import clip_loss
from earmark.training.api import MODEL, PSEUDO_LABELS, train
from earmark.training.checkpoint import CHECKPOINT, HISTORY, Epoch, read_checkpoint
from earmark.training.loop import learning_rate
from earmark.training.settings import TrainingConfig

ONE_THREAD = "training.threads=1"


@pytest.fixture(scope="module")
def tones(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tones")
    write_tones(folder, 24, seed=1, prefix="train", ragged=True)
    write_tones(folder, 8, seed=2, prefix="valid")
    return folder


def run(tones, out, *words, **choices):
    tables = (tones / "train_weak.tsv", tones / "valid_weak.tsv", tones / "audio", out)
    words = [*SMALL, ONE_THREAD, "training.max_epochs=3", *words]
    return train(*tables, settings=words, store=tones / "features", **choices)


def weights(out):
    return load_file(out / MODEL)


def test_it_leaves_a_checkpoint_a_history_and_a_model(tones, tmp_path):
    detector = run(tones, tmp_path / "run")
    assert detector.labels == ("high", "low")
    lines = (tmp_path / "run" / HISTORY).read_text().splitlines()
    assert lines[0].split("\t") == list(Epoch.__dataclass_fields__)
    assert len(lines) == 4
    _, state, _ = read_checkpoint(tmp_path / "run")
    assert state.finished
    assert state.best_loss == min(row.valid_loss for row in state.history)
    assert (tmp_path / "run" / MODEL).exists()
    assert not list((tmp_path / "run").glob(".*partial*"))


def test_the_callers_threads_and_random_numbers_are_left_alone(tones, tmp_path):
    torch.manual_seed(0)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    run(tones, tmp_path / "run", "training.max_epochs=1", "training.threads=2")
    assert torch.get_rng_state().equal(state)
    assert torch.get_num_threads() == threads


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tones, tmp_path):
    words = [
        "model.dropout=0.2",
        "augment.mixup=0.5",
        "augment.n_time_masks=1",
        "augment.gain_db=3",
    ]
    run(tones, tmp_path / "a", *words)
    run(tones, tmp_path / "b", *words)
    run(tones, tmp_path / "c", *words, "training.seed=1")
    a, b, c = (weights(tmp_path / name) for name in "abc")
    assert all(a[name].equal(b[name]) for name in a)
    assert not all(a[name].equal(c[name]) for name in a)


COMMAND = """
import sys
from earmark.training.api import train
root, out, resume = sys.argv[1:4]
train(f"{root}/train_weak.tsv", f"{root}/valid_weak.tsv", f"{root}/audio", out,
      settings=sys.argv[4:], store=f"{root}/features", resume=resume == "resume")
"""


def test_killed_at_any_moment_it_resumes_to_the_same_weights(tones, tmp_path):
    words = [*SMALL, ONE_THREAD, "training.max_epochs=6", "model.dropout=0.2"]
    words += ["augment.mixup=0.5", "augment.time_shift=1.0", "training.schedule=plateau"]
    words += ["augment.eq_db=6", "training.ema_decay=0.9"]
    words += ["training.checkpoint_seconds=0", "training.patience=20"]  # a checkpoint every step

    def start(out, resume="new"):
        arguments = [sys.executable, "-c", COMMAND, str(tones), str(out), resume, *words]
        with (tmp_path / "errors.txt").open("w") as errors:
            return subprocess.Popen(arguments, stderr=errors)

    whole = start(tmp_path / "whole")
    assert whole.wait() == 0, (tmp_path / "errors.txt").read_text()
    out, checkpoint = tmp_path / "killed", tmp_path / "killed" / CHECKPOINT
    rng = np.random.default_rng(0)
    kills = 0
    for _ in range(20):
        process = start(out, "resume" if checkpoint.exists() else "new")
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        # Wait until it has gone on by at least a step, then kill it in the midst of another.
        while process.poll() is None:
            if checkpoint.exists() and checkpoint.stat().st_mtime_ns != before:
                time.sleep(rng.uniform(0, 0.3))
                break
            time.sleep(0.01)
        if process.poll() is not None:
            break
        if kills == 3:
            assert process.wait() == 0, (tmp_path / "errors.txt").read_text()
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills >= 2, f"it was killed {kills} times only"
    assert process.returncode == 0, (tmp_path / "errors.txt").read_text()
    a, b = weights(tmp_path / "whole"), weights(out)
    assert all(a[name].equal(b[name]) for name in a)
    a, b = (load_file(tmp_path / name / CHECKPOINT) for name in ("whole", "killed"))
    assert all(a[name].equal(b[name]) for name in a)


def test_resuming_with_other_settings_or_data_is_refused(tones, tmp_path):
    run(tones, tmp_path / "run")
    with pytest.raises(SettingError, match="already holds a training"):
        run(tones, tmp_path / "run")
    with pytest.raises(SettingError, match="another data or settings"):
        run(tones, tmp_path / "run", "training.seed=5", resume=True)
    flipped = bytearray((tmp_path / "run" / CHECKPOINT).read_bytes())
    flipped[-100] ^= 1
    for damaged in (b"nonsense", bytes(flipped)):
        (tmp_path / "run" / CHECKPOINT).write_bytes(damaged)
        with pytest.raises(DataError, match="is damaged"):
            run(tones, tmp_path / "run", resume=True)


def test_resuming_what_was_stopped_before_its_first_checkpoint_begins_anew(tones, tmp_path):
    run(tones, tmp_path / "whole")
    run(tones, tmp_path / "stopped", resume=True)
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert all(a[name].equal(b[name]) for name in a)


def test_resuming_writes_a_table_that_a_kill_has_cost(tones, tmp_path):
    run(tones, tmp_path / "run")
    before = (tmp_path / "run" / HISTORY).read_text()
    (tmp_path / "run" / HISTORY).unlink()
    run(tones, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / HISTORY).read_text() == before


def test_the_best_epochs_weights_are_kept_not_the_last_ones(tones, tmp_path):
    run(tones, tmp_path / "run", "training.max_epochs=6", "training.learning_rate=0.05")
    _, state, tensors = read_checkpoint(tmp_path / "run")
    assert state.best_epoch < len(state.history) - 1, "choose settings under which it gets worse"
    saved = weights(tmp_path / "run")
    assert all(saved[name].equal(tensors[f"best.{name}"]) for name in saved)
    assert not all(saved[name].equal(tensors[f"model.{name}"]) for name in saved)


@pytest.mark.parametrize(
    "words", [["training.precision=64-true"], ["training.precision=bf16-mixed"]]
)
def test_other_precisions_train_as_well(tones, tmp_path, words):
    assert run(tones, tmp_path / "run", "training.max_epochs=1", *words).labels == ("high", "low")


def test_a_network_that_runs_away_is_told_in_a_sentence(tones, tmp_path):
    with pytest.raises(SettingError, match=r"smaller training\.learning_rate"):
        run(tones, tmp_path / "run", "training.learning_rate=1e30")


def test_an_accelerator_that_is_not_there_is_told_in_a_sentence(tones, tmp_path):
    with pytest.raises(SettingError, match="cannot run on accelerator='nonsense'"):
        run(tones, tmp_path / "run", accelerator="nonsense")


def test_training_and_validation_may_have_files_of_the_same_names(tmp_path):
    for part, seed in (("one", 1), ("two", 2)):
        write_tones(tmp_path / part, 12, seed=seed, prefix="clip")
    detector = train(
        tmp_path / "one" / "clip_weak.tsv",
        tmp_path / "two" / "clip_weak.tsv",
        tmp_path / "one" / "audio",
        tmp_path / "run",
        valid_audio=tmp_path / "two" / "audio",
        settings=[*SMALL, ONE_THREAD, "training.max_epochs=1"],
    )
    assert detector.bundle.training["n_valid"] == 12
    assert detector.bundle.window == 4.0


def test_resuming_a_finished_training_changes_nothing(tones, tmp_path):
    run(tones, tmp_path / "run")
    before = weights(tmp_path / "run")
    run(tones, tmp_path / "run", resume=True)
    after = weights(tmp_path / "run")
    assert all(before[name].equal(after[name]) for name in before)


def test_it_stops_when_validation_gets_no_better(tones, tmp_path):
    run(tones, tmp_path / "run", "training.max_epochs=50", "training.patience=2",
        "training.learning_rate=1e-9")  # fmt: skip
    _, state, _ = read_checkpoint(tmp_path / "run")
    assert len(state.history) < 50
    assert len(state.history) == state.best_epoch + 1 + 2


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_best_epoch_is_kept_or_the_last(tones, tmp_path, keep):
    run(tones, tmp_path / "run", "training.max_epochs=6", f"training.checkpoint={keep}",
        "training.learning_rate=0.1")  # fmt: skip
    _, state, tensors = read_checkpoint(tmp_path / "run")
    assert state.best_epoch < 5  # so large a rate gets no better step by step
    kept = {name: value for name, value in tensors.items() if name.startswith("best.")}
    same = [value.equal(tensors[name.replace("best.", "model.")]) for name, value in kept.items()]
    assert all(same) == (keep == "last")


def test_two_processes_follow_the_loss_curve_of_one(tones, tmp_path):
    """From a plain script, as a user would: no `if __name__ == "__main__"` is needed."""
    script = Path(tmp_path / "two.py")
    script.write_text(
        "import sys\n"
        "from earmark.training.api import train\n"
        "root, out, devices = sys.argv[1:4]\n"
        "train(f'{root}/train_weak.tsv', f'{root}/valid_weak.tsv', f'{root}/audio', out,\n"
        "      settings=sys.argv[4:], store=f'{root}/features', devices=int(devices))\n"
    )
    curves = []
    for devices in ("1", "2"):
        out = tmp_path / devices
        words = [*SMALL, ONE_THREAD, "training.max_epochs=3", "training.learning_rate=0.001"]
        words += ["training.batch_size=9"]  # so that the shares of two processes are unequal
        done = subprocess.run(
            [sys.executable, str(script), str(tones), str(out), devices, *words],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        about, state, _ = read_checkpoint(out)
        assert about["number of processes"] == devices
        curves.append([(e.train_loss, e.valid_loss) for e in state.history])
    np.testing.assert_allclose(*curves, rtol=2e-3)


def test_the_command_runs_under_torchrun(tones, tmp_path):
    words = [*SMALL, ONE_THREAD, "training.max_epochs=2"]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", "localhost:0", "-m", "earmark", "train"]
    tables = ["--train", tones / "train_weak.tsv", "--valid", tones / "valid_weak.tsv"]
    tables += ["--audio", tones / "audio", "--store", tones / "features", "--out", tmp_path / "run"]
    sets = [part for word in words for part in ("--set", word)]
    done = subprocess.run(
        [sys.executable, *launcher, *map(str, tables), "--devices", "2", *sets],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model.earmark: after 2 epochs") == 1
    about, _, _ = read_checkpoint(tmp_path / "run")
    assert about["number of processes"] == "2"


def test_balanced_batches_give_rare_classes_their_turn():
    targets = torch.zeros(100, 2)
    targets[:, 0] = 1
    targets[:5] = torch.tensor([0.0, 1.0])
    order = epoch_order(targets, 0, 3, balanced=True)
    assert len(order) == 100
    assert sum(row < 5 for row in order) == 50
    plain = epoch_order(targets, 0, 3)
    assert sorted(plain) == list(range(100))
    assert plain != epoch_order(targets, 0, 4)


def test_clips_without_a_tag_are_a_class_of_their_own_when_balanced():
    targets = torch.zeros(10, 1)
    targets[0] = 1
    order = epoch_order(targets, 0, 0, balanced=True)
    assert order.count(0) == 5


def test_learning_rates():
    config = TrainingConfig(schedule="cosine", max_epochs=10, warmup=1.0)
    rates = [learning_rate(config, p, []) for p in (0.0, 0.5, 1.0, 5.0, 10.0)]
    assert rates[0] < rates[1] < rates[2]
    assert rates[2] > rates[3] > rates[4] == pytest.approx(1e-5)
    rows = [Epoch(i, 0, 0, loss, 0) for i, loss in enumerate([3, 2, 2, 2, 2, 1, 1, 1, 1])]
    plateau = TrainingConfig(schedule="plateau", plateau=3)
    assert learning_rate(plateau, 0, rows[:4]) == 1e-3
    assert learning_rate(plateau, 0, rows[:5]) == 5e-4
    assert learning_rate(plateau, 0, rows) == 2.5e-4


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


def test_a_clip_that_cannot_be_read_is_set_aside_and_told(tones, tmp_path):
    folder = tmp_path / "data"
    write_tones(folder, 12, seed=5, prefix="train")
    (folder / "audio" / "train_003.wav").write_bytes(b"RIFF, it says")
    told = []
    detector = train(
        folder / "train_weak.tsv",
        audio=folder / "audio",
        out=tmp_path / "run",
        settings=[*SMALL, ONE_THREAD, "training.max_epochs=1"],
        tell=told.append,
    )
    assert any("set apart for validation" in sentence for sentence in told)
    assert any("train_003.wav" in sentence for sentence in told)
    about = detector.bundle.training
    assert about["n_train"] + about["n_valid"] == 11


def test_tensorboard_gets_its_curves_on_request(tones, tmp_path):
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
    words = ["training.max_epochs=1", "training.batch_size=24"]
    run(tones, tmp_path / "whole", *words)
    run(tones, tmp_path / "parts", *words, "training.micro_batch=5")
    pairs = [read_checkpoint(tmp_path / name) for name in ("whole", "parts")]
    (_, a, whole), (_, b, parts) = pairs
    assert b.history[0].train_loss == pytest.approx(a.history[0].train_loss, rel=1e-5)
    for name in whole:
        if "exp_avg" in name and "sq" not in name:  # Adam's mean of the only gradient
            torch.testing.assert_close(whole[name], parts[name], atol=1e-7, rtol=1e-3, msg=name)


def test_micro_batches_train_and_resume_to_the_bit(tones, tmp_path):
    words = ["training.micro_batch=3", "model.dropout=0.2"]
    run(tones, tmp_path / "a", *words)
    run(tones, tmp_path / "b", *words)
    a, b = (weights(tmp_path / name) for name in "ab")
    assert all(a[name].equal(b[name]) for name in a)
    _, state, _ = read_checkpoint(tmp_path / "a")
    assert state.history[-1].train_loss < state.history[0].train_loss


def test_two_processes_follow_one_in_micro_batches_too(tones, tmp_path):
    curves = []
    for devices in (1, 2):
        out = tmp_path / str(devices)
        words = ["training.learning_rate=0.001", "training.batch_size=12"]
        run(tones, out, *words, "training.micro_batch=4", devices=devices)
        _, state, _ = read_checkpoint(out)
        curves.append([(e.train_loss, e.valid_loss) for e in state.history])
    np.testing.assert_allclose(*curves, rtol=2e-3)


def test_averaging_changes_what_is_kept_and_not_how_it_learns(tones, tmp_path):
    words = ["training.ema_decay=0.9", "training.max_epochs=3"]
    run(tones, tmp_path / "whole", *words)
    run(tones, tmp_path / "plain", "training.max_epochs=3")
    assert not torch.equal(
        weights(tmp_path / "whole")["classifier.weight"],
        weights(tmp_path / "plain")["classifier.weight"],
    )
    # The steps themselves are the same: only what is validated and kept is another.
    losses = [
        [row.train_loss for row in read_checkpoint(tmp_path / name)[1].history]
        for name in ("whole", "plain")
    ]
    assert losses[0] == losses[1]


def test_onsets_and_offsets_are_learned_from_where_they_are_given(tones, tmp_path):
    words = ["training.max_epochs=30", "training.patience=30", "training.schedule=cosine"]
    strong = run(tones, tmp_path / "strong", *words, strong=tones / "train_strong.tsv")
    assert strong.bundle.training["supervision"] == "strong"
    assert run(tones, tmp_path / "weak").bundle.training["supervision"] == "weak"
    clips = Manifest.read(tones / "valid_strong.tsv", tones / "audio")
    events = read_events(tones / "valid_strong.tsv")
    n_wrong = n_active = 0
    for file, path in zip(clips.files, clips.paths, strict=True):
        probs = strong.frame_probs(path).probs
        timed = clips.take([clips.files.index(file)]).with_events(events)
        truth = read_frame_targets(timed, strong.grid, [0], len(probs))[0].numpy() > 0.5
        n_wrong += ((probs >= 0.5) != truth).sum()
        n_active += truth.sum()
    assert n_wrong < n_active / 4


def test_training_events_must_be_of_the_training_clips(tones, tmp_path):
    with pytest.raises(DataError, match="24 of 24 clips are not in the table of events"):
        run(tones, tmp_path, strong=tones / "valid_strong.tsv")


def test_a_teacher_is_learned_from_where_the_tags_allow_for_it(tones, tmp_path):
    words = ["training.max_epochs=30", "training.patience=30", "training.schedule=cosine"]
    run(tones, tmp_path / "teacher", *words, strong=tones / "train_strong.tsv")
    model = tmp_path / "teacher" / MODEL
    run(tones, tmp_path / "pupil", *words, "training.frame_loss_weight=1.0", teachers=[model])
    taught = np.load(tmp_path / "pupil" / PSEUDO_LABELS)
    clips = Manifest.read(tones / "train_weak.tsv", tones / "audio")
    teacher, begin = load(model), 0
    for row, path in enumerate(clips.paths):
        features = log_mel(read_audio(path)[0], teacher.bundle.features).unsqueeze(0)
        with torch.no_grad():
            probs = teacher.model(features).frame_probs[0].numpy() * clips.targets[row].numpy()
        said = taught[begin : begin + len(probs)]
        np.testing.assert_allclose(said, probs, atol=5e-3)  # features are in half precision
        begin += len(probs)
    assert begin == len(taught)
    # A pupil of frames alone times as well as its teacher, though it has seen tags only.
    pupil = load(tmp_path / "pupil" / MODEL)
    wave_file = clips.paths[int(clips.targets[:, 0].argmax())]
    one, other = (each.frame_probs(wave_file).probs[:, 0] for each in (teacher, pupil))
    assert np.corrcoef(one, other)[0, 1] > 0.9


def test_frames_are_of_events_or_of_teachers(tones, tmp_path):
    with pytest.raises(SettingError, match="from teachers, not both"):
        run(tones, tmp_path, strong=tones / "train_strong.tsv", teachers=[tmp_path / MODEL])


def test_what_teachers_have_said_is_kept_for_a_training_that_goes_on(tones, tmp_path):
    for name in ("teacher", "other"):
        run(tones, tmp_path / name, "training.max_epochs=1", f"training.seed={len(name)}")
    pupil, models = tmp_path / "pupil", [tmp_path / x / MODEL for x in ("teacher", "other")]
    run(tones, pupil, "training.max_epochs=1", teachers=models[:1])
    said = (pupil / PSEUDO_LABELS).stat().st_mtime_ns
    run(tones, pupil, "training.max_epochs=1", teachers=models[:1], resume=True)
    assert (pupil / PSEUDO_LABELS).stat().st_mtime_ns == said
    with pytest.raises(SettingError, match=r"teaching\.npy is of other teachers"):
        run(tones, pupil, "training.max_epochs=1", teachers=models[1:], resume=True)
    assert (pupil / PSEUDO_LABELS).stat().st_mtime_ns == said


def test_a_teacher_of_other_classes_is_refused(tones, tmp_path):
    run(tones, tmp_path / "teacher", "training.max_epochs=1")
    bundle = load(tmp_path / "teacher" / MODEL).bundle
    other = replace(bundle, labels=("a", "b"), decoding=replace(bundle.decoding, labels=("a", "b")))
    path = save_bundle(other, tmp_path / "other.earmark")
    with pytest.raises(SettingError, match="must have the labels"):
        run(tones, tmp_path / "pupil", teachers=[path])


def test_micro_batches_move_running_statistics_as_far_as_the_whole_batch(tones, tmp_path):
    words = ["training.batch_size=24", "training.max_epochs=1", "training.micro_batch={}"]
    moved = {}
    for size in (0, 6):
        run(tones, tmp_path / str(size), *(word.format(size) for word in words))
        moved[size] = weights(tmp_path / str(size))["blocks.0.0.norm.running_var"]
    # Each began at 1 and went a tenth of the way; four pieces of a tenth would go a third of it.
    torch.testing.assert_close(1 - moved[6], 1 - moved[0], rtol=0.15, atol=0)


def test_what_is_validated_is_what_is_kept(tones, tmp_path):
    detector = run(tones, tmp_path, "training.ema_decay=0.9", "training.max_epochs=4")
    clips = Manifest.read(tones / "valid_weak.tsv", tones / "audio")
    store = build_store(tones / "features", clip_paths(clips), detector.bundle.features.raw)
    said = predict_clips(detector.bundle.build_model(), store, clips, detector.bundle.features)
    loss = clip_loss(torch.from_numpy(said.clip_probs), clips.targets).item()
    assert loss == pytest.approx(detector.bundle.training["best_valid_loss"], abs=1e-5)


def test_a_teacher_without_a_share_changes_nothing(tones, tmp_path):
    run(tones, tmp_path / "teacher", "training.max_epochs=1")
    teachers = [tmp_path / "teacher" / MODEL]
    run(tones, tmp_path / "pupil", "training.frame_loss_weight=0.0", teachers=teachers)
    run(tones, tmp_path / "alone")
    run(tones, tmp_path / "half", teachers=teachers)
    alone, pupil, half = (weights(tmp_path / name) for name in ("alone", "pupil", "half"))
    torch.testing.assert_close(pupil, alone, rtol=1e-3, atol=1e-5)
    assert (half["classifier.weight"] - alone["classifier.weight"]).abs().max() > 1e-3
