"""The command line, from a soundbank to scores; in its own process where that is the subject."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import run
from tones import SMALL, TONES, write_tones

import earmark
from earmark.audio.decode import read_audio
from earmark.audio.encode import write_audio
from earmark.formats.events import read_events
from earmark.inference.model_file import load_bundle
from earmark.plots import save
from earmark.training.checkpoint import CHECKPOINT, HISTORY

OVERRIDES = [*SMALL, "training.threads=1", "training.max_epochs=4"]
SETTINGS = [part for override in OVERRIDES for part in ("--set", override)]


def run_process(*arguments, cwd=None, code=0):
    command = [sys.executable, "-m", "earmark", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with recordings, tables and a model trained by the command."""
    home = tmp_path_factory.mktemp("home")
    write_tones(home, 24, seed=1, prefix="train")
    write_tones(home, 8, seed=2, prefix="valid")
    tables = ["--train", "train_weak.tsv", "--valid", "valid_weak.tsv", "--audio", "audio"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("earmark.training.finish.save", save)  # other tests draw no history
        done = run("train", *tables, "--out", "run", "--licence", "CC0", *SETTINGS, cwd=home)
    assert "run/model.earmark: after 4 epochs, the best is epoch" in done.stdout
    epochs = [line for line in done.stderr.splitlines() if line.startswith("earmark: epoch")]
    assert len(epochs) == 4
    assert all(name in epochs[0] for name in ("loss", "valid", "mAP", "F1", "at most"))
    return home


def test_version_and_help_name_every_command():
    assert run_process("--version").stdout.strip() == earmark.__version__
    text = run_process("--help").stdout
    for command in (
        "demo",
        "doctor",
        "synth",
        "train",
        "tune",
        "detect",
        "evaluate",
        "info",
        "ensemble",
        "convert",
        "export-best",
        "listen",
        "serve",
    ):
        assert command in text
        assert "Usage" in run(command, "--help").stdout


def test_presets_and_objectives_in_the_help_come_from_their_registries():
    from earmark.inference.tuning import OBJECTIVES
    from earmark.training.settings import PRESETS

    for command, registry in (("train", PRESETS), ("recipe", PRESETS), ("tune", OBJECTIVES)):
        text = run(command, "--help").stdout
        assert all(name in text for name in registry), command
        assert "--device " in text


def test_training_writes_a_history_and_a_plot_of_it(home):
    lines = (home / "run" / "history.tsv").read_text().splitlines()
    assert len(lines) == 5
    assert (home / "run" / "history.png").read_bytes().startswith(b"\x89PNG")


def test_info_prints_the_description_of_a_model_file(home):
    text = run("info", "run/model.earmark", "--details", cwd=home).stdout
    for word in (
        "sample_rate=8000",
        "pooling=linear",
        "supervision=weak",
        "licence: CC0",
        "low",
        "torch=",
    ):
        assert word in text
    about = json.loads(run("info", "run/model.earmark", "--json", cwd=home).stdout)
    assert about["labels"] == sorted(TONES)
    assert about["features"][0]["mean"]


def test_plot_and_report_write_what_they_say(home):
    arguments = ("audio/valid_000.wav", "-m", "run/model.earmark", "--classes", "low", "--end", "2")
    done = run("plot", *arguments, "--out", "p.svg", "--reference", "valid_strong.tsv", cwd=home)
    assert done.stdout == "p.svg\n"
    assert "<svg" in (home / "p.svg").read_text()
    done = run("report", "run", "--bootstrap", 0, "--clips", 0, "--title", "<T>", cwd=home)
    assert done.stdout.startswith("report.html: ")
    page = (home / "report.html").read_text()
    assert "<h1>&lt;T&gt;</h1>" in page
    assert "earmark report run --bootstrap 0 --clips 0 --title &#x27;&lt;T&gt;&#x27;" in page


def test_models_become_one_that_detect_tune_and_info_take(home):
    model, table = "run/model.earmark", ("--valid", "valid_weak.tsv", "--audio", "audio")
    done = run("ensemble", model, model, "--out", "both.earmark", cwd=home)
    assert done.stdout.splitlines() == [
        "both.earmark: 2 networks; thresholds are the mean of the models', in log-odds, and not "
        "tuned",
        "next: earmark tune --model both.earmark --valid TAGS --audio FOLDER",
    ]
    done = run("ensemble", model, "--out", "one.earmark", cwd=home)
    assert done.stdout == "one.earmark: 1 network; one model, thresholds unchanged\n"
    one, other = (json.loads(run("info", x, "--json", cwd=home).stdout)
                  for x in (model, "one.earmark"))  # fmt: skip
    assert (one["tuning"], one["decoding"]) == (other["tuning"], other["decoding"])
    file = "audio/valid_000.wav"
    alone, both = (run("detect", file, "-m", x, cwd=home).stdout for x in (model, "both.earmark"))
    assert alone == both  # the mean of a network with itself
    text = run("info", "both.earmark", "--details", cwd=home).stdout
    assert text.startswith("both.earmark\n2 classes, 2 net")
    done = run("ensemble", model, model, "--out", "tuned.earmark", *table, cwd=home)
    assert done.stdout.startswith("tuned.earmark: 2 networks; tuned from weak labels")
    about = json.loads(run("info", "tuned.earmark", "--json", cwd=home).stdout)
    assert about["tuning"]["n_clips"] == 8 and "calibration" in about["tuning"]
    run("tune", "--model", "both.earmark", *table, cwd=home)
    tuned = json.loads(run("info", "both.earmark", "--json", cwd=home).stdout)
    assert tuned["decoding"] == about["decoding"]
    done = run("ensemble", model, "--out", "x.earmark", "--valid", "valid_weak.tsv", cwd=home,
               code=2)  # fmt: skip
    assert "--valid and --audio go together" in done.stderr


def test_detect_prints_a_dcase_table_that_evaluate_scores(home):
    files = [f"audio/valid_{n:03d}.wav" for n in range(8)]
    out = run("detect", *files, "--model", "run/model.earmark", cwd=home).stdout
    assert out.splitlines()[0] == "filename\tonset\toffset\tevent_label"
    run("detect", "audio", "-m", "run/model.earmark", "--out", "estimate.tsv", "--score", cwd=home)
    found = read_events(home / "estimate.tsv")
    assert len(found) == 32
    tables = ("--reference", "valid_strong.tsv", "--estimate", "estimate.tsv")
    done = run("evaluate", *tables, cwd=home)
    assert "overall" in done.stdout
    assert "24 files of estimate.tsv are not in valid_strong.tsv" in done.stderr
    scores = json.loads(run("evaluate", *tables, "--json", cwd=home).stdout)
    assert 0 <= scores["segment"]["overall"]["f_measure"]["f_measure"] <= 1
    assert set(scores["segment"]["overall"]["error_rate"]) >= {"error_rate", "deletion_rate"}
    tables = ("--reference", "valid_strong.tsv", "--estimate", "valid_strong.tsv")
    same = json.loads(run("evaluate", *tables, "--json", cwd=home).stdout)
    assert same["segment"]["overall"]["f_measure"]["f_measure"] == 1


def test_two_systems_are_compared_with_interval_and_p_value_and_scores_give_psds(home):
    model = ("-m", "run/model.earmark")
    names = [f"valid_{number:03d}" for number in range(8)]
    files = [f"audio/{name}.wav" for name in names]
    run("detect", *files, *model, "--out", "some.tsv", "--scores", "scores", cwd=home)
    assert sorted(path.stem for path in (home / "scores").iterdir()) == names
    run("detect", *files[:4], *model, "--out", "few.tsv", cwd=home)
    done = run("evaluate", "valid_strong.tsv", "few.tsv", "some.tsv", "--bootstrap", "60", cwd=home)
    assert "B - A" in done.stdout
    assert "4 files of valid_strong.tsv are missing from few.tsv" in done.stderr
    systems = ("few.tsv", "some.tsv", "--bootstrap", "60")
    both = json.loads(run("evaluate", "valid_strong.tsv", *systems, "--json", cwd=home).stdout)
    found = both["differences"]["some.tsv"]["segment"]["overall"]["f_measure"]["f_measure"]
    assert found["difference"] == found["b"] - found["a"]
    assert 0 < found["p_value"] <= 1
    arguments = ("valid_strong.tsv", "some.tsv", "--scores", "scores", "--bootstrap", "60")
    one = json.loads(run("evaluate", *arguments, "--json", "--plots", "drawn", cwd=home).stdout)
    assert 0 <= one["psds1"]["overall"]["psds"]["psds"] <= 1
    assert (home / "drawn" / "psd_roc1_1.png").exists()
    assert "| segment ER |" in run("evaluate", *arguments, "--markdown", cwd=home).stdout


@pytest.fixture(scope="module")
def one_table(home):
    """Events of one recording, in one.tsv."""
    run("detect", "audio/valid_000.wav", "-m", "run/model.earmark", "--out", "one.tsv", cwd=home)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["valid_strong.tsv"], "evaluate needs a reference table and at least one estimate"),
        (["valid_strong.tsv", "one.tsv", "--json", "--markdown"], "exclude each other"),
        (["valid_strong.tsv", "one.tsv", "--scores", "a", "--scores", "b"], "Got 2 for 1"),
        (["valid_strong.tsv", "one.tsv", "--resolution", "0"], "resolution must be"),
        (["valid_strong.tsv", "one.tsv", "--onset-collar", "-1"], "onset_collar"),
        (["valid_strong.tsv", "one.tsv", "--scores", "none"], "none is no folder"),
        (
            ["valid_strong.tsv", "one.tsv", "--bootstrap", "3"],
            "n_bootstrap must be at least 40",
        ),
        (
            ["valid_strong.tsv", "one.tsv", "--plots", "one.tsv"],
            "--plots must be a folder",
        ),
        (
            ["valid_strong.tsv", "one.tsv", "--durations", "one.tsv"],
            "no column 'duration'",
        ),
    ],
)
def test_evaluate_reports_bad_arguments_in_one_sentence(home, one_table, arguments, message):
    assert message in run("evaluate", *arguments, cwd=home, code=2).stderr


def test_a_bad_recording_among_good_ones_is_reported_and_events_are_detected_in_the_rest(home):
    (home / "bad.wav").write_bytes(b"not audio")
    done = run(
        "detect", "bad.wav", "audio/valid_000.wav", "-m", "run/model.earmark", cwd=home, code=1
    )
    assert "bad.wav is not audio" in done.stderr
    assert "1 of 2 recordings could not be used" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2
    assert done.stdout.startswith("filename")


def test_tune_from_weak_and_from_strong_labels(home):
    where = ["--model", "run/model.earmark", "--audio", "audio"]
    weak = run("tune", *where, "--valid", "valid_weak.tsv", "--out", "weak.earmark", cwd=home)
    assert "tuned from weak labels" in weak.stdout
    rules = [load_bundle(home / f"{x}.earmark").decoding.rules for x in ("run/model", "weak")]
    for before_rule, after_rule in zip(*rules, strict=True):  # tags say nothing about frames
        kept = replace(after_rule, clip_threshold=before_rule.clip_threshold)
        assert kept == before_rule
    shared = ["tune", *where, "--valid", "valid_weak.tsv", "--shared", "--out", "shared.earmark"]
    run(*shared, cwd=home)
    before, after = (load_bundle(home / f"{x}.earmark").decoding for x in ("run/model", "shared"))
    assert [r.threshold for r in after.rules] == [r.threshold for r in before.rules]
    n_before, n_after = (len({r.clip_threshold for r in x.rules}) for x in (before, after))
    assert n_after == 1 < n_before
    refused = run(*shared, "--objective", "error_rate", cwd=home, code=2)
    assert "leave out objective." in refused.stderr
    assert "leave out strong." in run(*shared, "--strong", cwd=home, code=2).stderr
    strong = run(
        "tune", *where, "--valid", "valid_strong.tsv", "--strong", "--objective", "error_rate",
        "--out", "strong.earmark", "--json", cwd=home,
    )  # fmt: skip
    result = json.loads(strong.stdout)
    assert result["supervision"] == "strong"
    assert result["cross_validation"]["n_folds"] == 5
    used = "strong" if result["is_adopted"] else "weak"
    assert f"{used} labels, for" in run("info", "strong.earmark", cwd=home).stdout
    assert "weak labels, for" in run("info", "run/model.earmark", cwd=home).stdout


def test_tune_leaves_the_model_file_alone_where_there_is_no_gain(home):
    """Events at random places of the clips: whatever is found there is of no use elsewhere."""
    model = home / "kept.earmark"
    shutil.copy(home / "run" / "model.earmark", model)
    before = model.read_bytes()
    events = read_events(home / "valid_strong.tsv")
    rng = random.Random(0)
    table = ["filename\tonset\toffset\tevent_label"]
    for file in sorted(events)[:6]:
        table.append(f"{file}\t{rng.uniform(0, 3):.2f}\t3.50\t{rng.choice(sorted(TONES))}")
    (home / "random.tsv").write_text("\n".join(table))
    done = run(
        "tune", "-m", "kept.earmark", "--valid", "random.tsv", "--audio", "audio", "--strong",
        "--objective", "event_f_measure", cwd=home,
    )  # fmt: skip
    last = done.stdout.splitlines()[-1]
    assert last.startswith("kept.earmark: nothing changed: event_f_measure ")
    assert "cross-validated" in last
    assert model.read_bytes() == before


@pytest.fixture
def negatives(home):
    """A folder of recordings without any of the tones."""
    rng = np.random.default_rng(3)
    for number in range(4):
        noise = 0.01 * rng.standard_normal(32000)
        (home / "negatives").mkdir(exist_ok=True)
        write_audio(home / "negatives" / f"noise_{number}.wav", noise.astype(np.float32), 8000)
    return "negatives"


def test_tune_keeps_a_limit_of_false_events_and_calibrates(home, negatives):
    where = ["--model", "run/model.earmark", "--audio", "audio", "--valid", "valid_weak.tsv"]
    limit = ["--negatives", negatives, "--max-false-per-minute", "1"]
    done = run("tune", *where, *limit, "--out", "limited.earmark", cwd=home)
    assert "sensitivity\tfalse_per_minute" in done.stdout
    assert "false events per minute in 0.3 minutes of negatives" in done.stdout
    bundle = load_bundle(home / "limited.earmark")
    record = bundle.tuning["false_events"]
    assert record["per_minute"] <= record["max_per_minute"] == 1
    assert record["n_recordings"] == 4
    assert {point["setting"]: point for point in record["curve"]}[0]["per_minute"] <= 1
    assert bundle.tuning["calibration"]["n_events"] >= 0
    tuned = json.loads(run("tune", *where, "--out", "plain.earmark", "--json", cwd=home).stdout)
    assert "false_events" not in tuned["tuning"]
    shifted = load_bundle(home / "plain.earmark").decoding.shifted(record["sensitivity"])
    assert bundle.decoding == shifted
    assert "the limit of 1 costs: clip recall" in done.stdout
    assert "too short to tell 1 false events per minute" in done.stderr
    refused = run("tune", *where, "--max-false-per-minute", "1", cwd=home, code=2)
    assert "max_false_per_minute needs negatives=" in refused.stderr
    refused = run("tune", *where, "--negatives", "audio", cwd=home, code=2)
    assert "is among the negatives, and also a validation clip" in refused.stderr


def test_detect_takes_a_sensitivity_and_a_minimum_score_and_evaluate_negatives(home, negatives):
    command = ["detect", "audio", negatives, "-m", "run/model.earmark", "--score"]
    tables = {}
    for sensitivity in ("-6", "6"):
        run(*command, "--sensitivity", sensitivity, "--out", "moved.tsv", cwd=home)
        tables[sensitivity] = read_events(home / "moved.tsv")
    n_tags = {
        name: sum(len({event.label for event in own}) for own in table.values())
        for name, table in tables.items()
    }
    assert n_tags["-6"] < n_tags["6"]
    scored = json.loads(
        run("evaluate", "valid_strong.tsv", "moved.tsv", "--negatives", negatives, "--json",
            "--bootstrap", "40", cwd=home).stdout
    )  # fmt: skip
    n_false = sum(len(tables["6"][f"noise_{number}.wav"]) for number in range(4))
    false = scored["false_events"]["overall"]["false_events"]
    assert false["per_minute"] == pytest.approx(n_false / (16 / 60))
    assert 0 <= scored["calibration"]["overall"]["calibration"]["ece"] <= 1
    (home / "durations.tsv").write_text("filename\tduration\nnoise_0.wav\t4.0\n")
    one = run("evaluate", "valid_strong.tsv", "moved.tsv", "--negatives", "durations.tsv",
              "--bootstrap", "40", cwd=home)  # fmt: skip
    assert "false events per minute" in one.stdout
    run(*command, "--sensitivity", "6", "--min-score", "0.5", "--out", "sure.tsv", cwd=home)
    sure = read_events(home / "sure.tsv")
    assert sure == {
        name: [event for event in own if event.score >= 0.5] for name, own in tables["6"].items()
    }


def test_doctor_reports_and_exits_with_1_if_training_cannot_start(home, tmp_path):
    done = run("doctor", "train_weak.tsv", "--audio", "audio", cwd=home)
    assert "24" in done.stdout
    report = json.loads(
        run("doctor", "train_weak.tsv", "--valid", "valid_weak.tsv", "--audio", "audio", "--json",
            cwd=home).stdout
    )  # fmt: skip
    assert report["stops"] is False
    (tmp_path / "none.tsv").write_text("filename\tevent_labels\nlost.wav\tdog\n")
    (tmp_path / "audio").mkdir()
    run("doctor", "none.tsv", "--audio", "audio", cwd=tmp_path, code=1)


def test_synth_from_procedural_sounds_and_from_a_soundbank(tmp_path):
    scene = ["--sample-rate", 8000, "--duration", 3, "--event-duration", 0.5, 1.0, "--events", 1, 2]
    done = run("synth", "a", "--n", 3, "--classes", "siren,bell", *scene, cwd=tmp_path)
    assert "3 scenes" in done.stdout
    run("synth", "b", "--n", 3, "--classes", "siren,bell", *scene, cwd=tmp_path)
    names = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert len(names) == 5
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    run("synth", "a", "--n", 3, *scene, cwd=tmp_path, code=2)
    rng = np.random.default_rng(0)
    for category in ("dog", "cat"):
        (tmp_path / "bank" / category).mkdir(parents=True)
        wave = 0.3 * rng.standard_normal(8000)
        write_audio(tmp_path / "bank" / category / "1.wav", wave, 8000)
    run("synth", "c", "--n", 2, "--bank", "bank", "--backgrounds", "pink", *scene, cwd=tmp_path)
    labels = {
        event.label
        for events in read_events(tmp_path / "c/strong.tsv").values()
        for event in events
    }
    assert labels <= {"dog", "cat"}
    rows = "filename\tcategory\tfold\ndog/1.wav\tdog\t1\ncat/1.wav\tcat\t2\n"
    (tmp_path / "bank.tsv").write_text(rows)
    run("synth", "d", "--n", 2, "--table", "bank.tsv", "--audio", "bank", "--folds", "1",
        "--backgrounds", "white", *scene, cwd=tmp_path)  # fmt: skip
    labels = {
        event.label
        for events in read_events(tmp_path / "d/strong.tsv").values()
        for event in events
    }
    assert labels == {"dog"}
    waveform, rate = read_audio(tmp_path / "d/audio/scene_00000.wav")
    assert (len(waveform), rate) == (24000, 8000)


def test_quiet_and_verbose_set_the_log_level(home, tmp_path):
    (tmp_path / "tags.tsv").write_text((home / "train_weak.tsv").read_text() + "lost.wav\tlow\n")
    table = ["--train", tmp_path / "tags.tsv", "--audio", home / "audio"]
    where = ["--store", home / "run" / "features", "--set", "training.max_epochs=1"]
    arguments = ["train", *table, *SETTINGS, *where, "--device", "cpu", "--out"]
    warning = "earmark: 1 of 25 training clips are missing and are skipped; the first is lost.wav."
    quiet = run("--quiet", *arguments, tmp_path / "quiet")
    first, few = quiet.stderr.splitlines()
    assert first == warning
    assert few.startswith("earmark: Fewer than 5 validation clips: ")
    for level in ((), ("--verbose",)):
        done = run(*level, *arguments, tmp_path / f"out{len(level)}")
        assert warning in done.stderr.splitlines()
        assert "clips are held out for validation." in done.stderr
        assert "earmark: epoch 0 (1/1)  loss" in done.stderr
        assert ("earmark: decoding tuned on" in done.stderr) == bool(level)


def test_a_device_that_is_not_there_gets_one_sentence(home):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = run("detect", "audio/valid_000.wav", "--device", "cuda", cwd=home, code=2)
    assert "earmark: The device 'cuda' is not available: torch finds 0 CUDA devices" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_training_with_the_model_of_its_best_epoch(home, tmp_path, stop):
    arguments = ["train", "--train", home / "train_weak.tsv", "--valid", home / "valid_weak.tsv"]
    arguments += [
        "--audio",
        home / "audio",
        "--out",
        tmp_path / "run",
        "--store",
        home / "run" / "features",
    ]
    arguments += [*SETTINGS, "--set", "training.max_epochs=200", "--set", "training.patience=200"]
    command = [sys.executable, "-m", "earmark", *map(str, arguments)]

    def restore_ctrl_c():  # which shells disable for background processes
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with (tmp_path / "said.txt").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, preexec_fn=restore_ctrl_c)  # noqa: PLW1509
    while process.poll() is None and not (tmp_path / "run" / HISTORY).exists():
        time.sleep(0.05)
    process.send_signal(stop)
    said = (tmp_path / "said.txt").read_text
    assert process.wait() == 130, said()
    assert "Stopped; writing the model of the epochs so far." in said()
    assert "Resume with the same command and --resume" in said()
    assert (tmp_path / "run" / CHECKPOINT).exists()
    before = (tmp_path / "run" / "model.earmark").read_bytes()
    if stop == signal.SIGTERM:
        assert "already contains a training" in run(*arguments, code=2).stderr
    else:  # as after a kill
        (tmp_path / "run" / "model.earmark").unlink()
        done = run("export-best", tmp_path / "run")
        assert "model.earmark: after " in done.stdout
        assert "average precision" in done.stderr
        assert (tmp_path / "run" / "model.earmark").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["demmo"], "demmo"),
        (["info", "none.earmark"], "no model file none.earmark"),
        (["plot", "audio/valid_000.wav", "--out", "p.jpg"], "ends in .png, .svg or .pdf"),
        (["plot", "audio/valid_000.wav", "--reference", "train_strong.tsv"], "no file valid_000"),
        (["report", "train_strong.tsv"], "no output folder of a training"),
        (["detect", "none.wav", "-m", "run/model.earmark"], "none.wav"),
        (["train", "--train", "none.tsv", "--audio", "audio", "--out", "x"], "none.tsv"),
        (["train", "--train", "train_weak.tsv", "--audio", "audio", "--out", "x", "--set",
          "model.pool=max"], "did you mean 'model.pools'"),
        (["train", "--train", "train_weak.tsv", "--audio", "audio", "--out", "x", "--preset",
          "papier"], "did you mean 'paper'"),
        (["evaluate", "--reference", "none.tsv", "--estimate", "train_strong.tsv"], "none.tsv"),
        (["synth", "x", "--classes", "sirene"], "sirene"),
        (["synth", "x", "--bank", "audio", "--table", "t"], "not both"),
        (["tune", "-m", "run/model.earmark", "--valid", "no.tsv", "--audio", "audio"], "no.tsv"),
        (["doctor", "none.tsv", "--audio", "audio"], "none.tsv"),
        (["synth", "x", "--prefix", "../y"], "first part of a file name"),
        (["synth", "x", "--suffix", ".mp4"], ".mp4"),
        (["synth", "train_weak.tsv/x"], "Not a directory"),
        (["detect", "audio", "-m", "run/model.earmark", "--out", "no/such.tsv"], "folder 'no'"),
        (["tune", "-m", "run/model.earmark", "--valid", "valid_weak.tsv", "--audio", "audio",
          "--objective", "f_measur"], "did you mean 'f_measure'"),
        (["detect", "audio", "--sensitivity", "hihg"], "did you mean 'high'"),
        (["detect", "audio", "--min-score", "2"], "min_score must be a number from 0 to 1"),
        (["export", "everyday", "no/m.onnx"], "there is no folder 'no'; make it first"),
        (["ensemble", "run/model.earmark", "--out", "no/m.earmark"], "there is no folder 'no'"),
        (["export-best", "run", "--out", "no/m.earmark"], "there is no folder 'no'"),
        (["tune", "-m", "everyday", "--valid", "valid_weak.tsv", "--audio", "audio"],
         "The bundled model stays as it is"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence_and_exit_code_2(home, arguments, sentence):
    done = run(*arguments, cwd=home, code=2)
    assert sentence in done.stderr
    assert not (home / "x").exists() or not any((home / "x").iterdir())


def test_a_reader_that_leaves_ends_any_command_quietly_with_141(home):
    for words in (["convert", "train_strong.tsv", "-"], ["info", "run/model.earmark"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "earmark", "--quiet", *words],
            cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        process.stdout.close()
        with process.stderr as log:
            assert log.read() == b""
        assert process.wait() == 141


def test_bad_input_ends_the_process_without_a_traceback(home):
    done = run_process("info", "none.earmark", cwd=home, code=2)
    assert done.stderr.startswith("earmark: There is no model file none.earmark")
    assert len(done.stderr.splitlines()) == 1


def test_a_table_with_a_wrong_row_names_file_and_line(home):
    (home / "wrong.tsv").write_text("filename\tonset\toffset\tevent_label\na.wav\t2\t1\tdog\n")
    tables = ("--reference", "wrong.tsv", "--estimate", "wrong.tsv")
    assert "wrong.tsv:2" in run("evaluate", *tables, cwd=home, code=2).stderr


def test_the_demo_runs_from_scenes_to_scores(tmp_path, monkeypatch, capsys):
    """With few scenes, a small network and one epoch; `make demo` runs it in full."""
    from earmark.cli.demo import demo as demo_command
    from earmark.experiments import demo

    monkeypatch.setattr(demo, "N_SCENES", {"train": 8, "valid": 6, "test": 2})
    small = [override for override in SMALL if override.startswith("model.")]
    monkeypatch.setattr(demo, "SETTINGS", (*small, "training.max_epochs=1"))
    monkeypatch.setattr(demo, "N_PROCESSES", 1)
    report = demo.run_demo(tmp_path / "demo")
    assert report.scores.n_files == 2
    text = report.describe()
    assert "target MISSED" in text
    assert f"bundled pretrained model on {tmp_path / 'demo' / 'bundled.wav'}" in text
    detected = {event.label for event in report.bundled_estimate}
    assert detected & {event.label for event in report.bundled_reference}, detected
    assert all(f"s  {label}\n" in text for label in detected)
    for picture in ("hierarchy.png", "detection.png", "history.png"):
        assert (tmp_path / "demo" / picture).read_bytes().startswith(b"\x89PNG")
    demo_command(tmp_path / "demo")  # and again in the same folder
    assert "earmark train --train tags.tsv" in capsys.readouterr().out
