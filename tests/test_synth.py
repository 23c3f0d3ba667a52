from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from earmark.audio.decode import read_audio
from earmark.audio.encode import write_audio
from earmark.errors import AudioError, DataError, SettingError
from earmark.formats.events import read_events
from earmark.formats.tags import read_tags
from earmark.synth.scenes import SceneConfig, make_scene, write_scenes
from earmark.synth.soundbank import (
    ProceduralBank,
    Soundbank,
    active_segments,
    loop,
    open_bank,
)
from earmark.synth.sounds import NOISES, SOUNDS

RATE = 16000
SMALL = SceneConfig(sample_rate=8000, duration=3.0, event_duration=(0.3, 1.0), n_events=(1, 3))


def power(waveform):
    return float(np.mean(np.square(waveform, dtype=np.float64)))


def components(scene):
    """The background and every layer, each placed in a silence as long as the scene."""
    places = []
    for event, layer in zip(scene.events, scene.layers, strict=True):
        place = np.zeros(len(scene.waveform))
        first = round(event.onset * scene.sample_rate)
        place[first : first + len(layer)] = layer
        places.append(place)
    return scene.background.astype(np.float64), places


def content(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def bank_folder(tmp_path):
    """Two categories and a background, with zeros around and within the recordings."""
    rng = np.random.default_rng(0)
    noise = rng.uniform(-0.5, 0.5, 5 * RATE).astype(np.float32)
    padded = np.zeros(5 * RATE, np.float32)
    padded[RATE : RATE + RATE // 2] = noise[: RATE // 2]  # sounds from 1.0 to 1.5 s only
    twice = padded.copy()
    twice[3 * RATE : 3 * RATE + RATE // 5] = noise[: RATE // 5]
    for name, waveform in {
        "dog/1.wav": padded,
        "dog/2.wav": twice,
        "saw/1.wav": noise,
        "rain/1.wav": 0.1 * noise[: 2 * RATE],
        "rain/notes.txt": None,
    }.items():
        path = tmp_path / "bank" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if waveform is None:
            path.touch()
        else:
            write_audio(path, waveform, RATE)
    return tmp_path / "bank"


class TestSounds:
    @pytest.mark.parametrize("name", [*SOUNDS, *NOISES])
    @pytest.mark.parametrize("sample_rate", [8000, 32000])
    def test_have_the_requested_duration_and_a_peak_of_one(self, name, sample_rate):
        make = {**SOUNDS, **NOISES}[name]
        for duration in (0.01, 0.3, 2.0):
            waveform = make(np.random.default_rng(1), duration, sample_rate)
            assert waveform.shape == (round(duration * sample_rate),)
            assert waveform.dtype == np.float32
            assert np.abs(waveform).max() == pytest.approx(1.0, abs=1e-6)

    @pytest.mark.parametrize("name", SOUNDS)
    def test_are_active_in_every_quarter_second_to_the_end(self, name):
        for seed in range(12):
            rng = np.random.default_rng(seed)
            waveform = SOUNDS[name](rng, rng.uniform(0.25, 4.0), RATE)
            quarter = RATE // 4
            starts = [*range(0, len(waveform) - quarter + 1, quarter // 4), len(waveform) - quarter]
            softest = min(power(waveform[start : start + quarter]) for start in starts)
            assert softest > 0.02 * power(waveform), (seed, softest / power(waveform))

    @pytest.mark.parametrize("name", [*SOUNDS, *NOISES])
    def test_are_the_same_for_the_same_seed_only(self, name):
        make = {**SOUNDS, **NOISES}[name]
        first, again, other = (make(np.random.default_rng(seed), 0.5, RATE) for seed in (3, 3, 4))
        assert np.array_equal(first, again)
        assert not np.allclose(first, other, atol=0.05)

    def test_differ_in_their_spectra(self):
        # Nearest class mean of a coarse spectrum: much less than a network uses.
        def fingerprint(name, seed):
            waveform = SOUNDS[name](np.random.default_rng(seed), 2.0, RATE)
            frames = waveform[: len(waveform) // 512 * 512].reshape(-1, 512)
            bands = np.square(np.abs(np.fft.rfft(frames * np.hanning(512)))[:, 1:]).reshape(
                -1, 64, 4
            )
            levels = np.log10(bands.sum(axis=2) + 1e-4)
            return np.concatenate([levels.mean(axis=0), levels.std(axis=0)])

        seen = {name: np.mean([fingerprint(name, s) for s in range(12)], axis=0) for name in SOUNDS}
        hits = [
            name == min(seen, key=lambda other: np.linalg.norm(seen[other] - new))
            for name in SOUNDS
            for new in (fingerprint(name, seed) for seed in range(100, 105))
        ]
        assert np.mean(hits) > 0.9

    def test_need_at_least_one_sample(self):
        with pytest.raises(SettingError, match="one sample or more"):
            SOUNDS["bell"](np.random.default_rng(0), 0.0, RATE)

    @pytest.mark.parametrize(("name", "slope"), [("white", 0), ("pink", 1), ("brown", 2)])
    def test_noises_have_the_spectral_slope_of_their_colour(self, name, slope):
        waveform = NOISES[name](np.random.default_rng(0), 10.0, RATE)
        spectrum = np.square(np.abs(np.fft.rfft(waveform)))
        frequencies = np.fft.rfftfreq(len(waveform), 1 / RATE)
        bands = [
            spectrum[(frequencies >= low) & (frequencies < 2 * low)].mean()
            for low in (125, 250, 500, 1000, 2000)
        ]
        assert np.polyfit(np.arange(5), np.log2(bands), 1)[0] == pytest.approx(-slope, abs=0.25)


class TestScenes:
    def test_are_the_sum_of_their_background_and_events(self):
        for index in range(5):
            scene = make_scene(SMALL, seed=1, index=index)
            background, places = components(scene)
            assert np.allclose(scene.waveform, background + sum(places), atol=1e-6)
            assert np.abs(scene.waveform).max() <= 0.99 + 1e-6

    def test_are_active_exactly_from_onset_to_offset(self):
        for index in range(10):
            scene = make_scene(SMALL, seed=2, index=index)
            _, places = components(scene)
            for event, place in zip(scene.events, places, strict=True):
                active = np.flatnonzero(place)
                assert abs(active[0] / scene.sample_rate - event.onset) <= 0.01
                assert abs((active[-1] + 1) / scene.sample_rate - event.offset) <= 0.01
                assert active[-1] < round(event.offset * scene.sample_rate)

    @pytest.mark.parametrize("snr_db", [-5.0, 0.0, 12.0])
    def test_have_the_requested_snr(self, snr_db):
        config = SceneConfig(sample_rate=8000, duration=5.0, snr_db=(snr_db, snr_db))
        for index in range(8):
            scene = make_scene(config, seed=3, index=index)
            for event, layer in zip(scene.events, scene.layers, strict=True):
                first = round(event.onset * scene.sample_rate)
                behind = power(scene.background[first : first + len(layer)])
                assert 10 * np.log10(power(layer) / behind) == pytest.approx(snr_db, abs=0.01)

    def test_keep_to_their_config(self):
        config = SceneConfig(
            sample_rate=8000, n_events=(2, 4), event_duration=(0.5, 2.0), classes=("bell", "horn")
        )
        for index in range(20):
            events = make_scene(config, seed=4, index=index).events
            assert 2 <= len(events) <= 4
            assert list(events) == sorted(events)
            for event in events:
                assert event.label in config.classes
                assert 0 <= event.onset < event.offset <= config.duration
                assert 0.4995 <= event.duration <= 2.0005

    def test_keep_events_of_one_class_apart(self):
        config = SceneConfig(sample_rate=8000, n_events=(3, 4), classes=("bell", "horn"), gap=0.3)
        for index in range(20):
            events = make_scene(config, seed=5, index=index).events
            for label in config.classes:
                own = [event for event in events if event.label == label]
                for before, after in pairwise(own):
                    assert after.onset - before.offset >= 0.3 - 1e-9

    @pytest.mark.parametrize("max_overlap", [1, 2])
    def test_never_have_more_simultaneous_events_than_allowed(self, max_overlap):
        config = SceneConfig(sample_rate=8000, n_events=(4, 4), max_overlap=max_overlap)
        most = 0
        for index in range(15):
            events = make_scene(config, seed=6, index=index).events
            at_once = [sum(e.onset <= at.onset < e.offset for e in events) for at in events]
            most = max(most, *at_once)
        assert most == max_overlap

    def test_of_one_seed_and_index_are_the_same_and_others_are_not(self):
        first, again, other_index, other_seed = (
            make_scene(SMALL, seed, index) for seed, index in ((7, 3), (7, 3), (7, 4), (8, 3))
        )
        assert np.array_equal(first.waveform, again.waveform)
        assert first.events == again.events
        assert first.events not in (other_index.events, other_seed.events)

    def test_may_have_no_event(self):
        scene = make_scene(SceneConfig(sample_rate=8000, n_events=(0, 0)), seed=0)
        assert scene.events == ()
        assert np.array_equal(scene.waveform, scene.background)

    def test_shorten_events_rather_than_drop_them(self):
        config = SceneConfig(
            sample_rate=8000,
            n_events=(4, 4),
            event_duration=(0.5, 9.0),
            max_overlap=1,
            classes=("siren",),
        )
        assert len(make_scene(config, seed=0).events) == 4

    def test_raise_if_events_do_not_fit(self):
        config = SceneConfig(
            sample_rate=8000,
            duration=2.0,
            n_events=(3, 3),
            event_duration=(0.6, 0.6),
            classes=("horn",),
        )
        with pytest.raises(SettingError, match=r"do not fit into 2\.0 s"):
            make_scene(config, seed=0)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"sample_rate": 100},
            {"duration": 0.0},
            {"n_events": (3, 1)},
            {"n_events": (-1, 1)},
            {"n_events": (1, 100)},
            {"event_duration": (0.0, 1.0)},
            {"event_duration": (1.0, 20.0)},
            {"snr_db": (0.0, float("nan"))},
            {"level_db": (-10.0, 3.0)},
            {"max_overlap": 0},
            {"gap": 0.0},
            {"backgrounds": ()},
        ],
    )
    def test_refuse_a_config_that_cannot_work(self, wrong):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            SceneConfig(**wrong)

    def test_name_the_nearest_class_and_background(self):
        with pytest.raises(SettingError, match=r"no class 'sirens'; did you mean 'siren'"):
            make_scene(SceneConfig(classes=("sirens",)), seed=0)
        with pytest.raises(SettingError, match=r"no background 'pinc'; did you mean 'pink'"):
            make_scene(SceneConfig(backgrounds=("pinc",)), seed=0)
        with pytest.raises(SettingError, match="seed and index"):
            make_scene(SMALL, seed=-1)


class TestSoundbank:
    def test_finds_categories_in_folders(self, bank_folder):
        bank = Soundbank.from_folder(bank_folder)
        assert bank.categories == ("dog", "rain", "saw")
        assert [path.name for path in bank.files["dog"]] == ["1.wav", "2.wav"]

    def test_samples_only_active_parts(self, bank_folder):
        bank = Soundbank.from_folder(bank_folder)
        lengths = set()
        for seed in range(20):
            piece = bank.sample("dog", np.random.default_rng(seed), 4.0, RATE)
            lengths.add(len(piece) / RATE)
            assert min(power(part) for part in np.array_split(piece, 10)) > 0.01
        assert lengths == {0.5, 0.2}  # the second sound of 2.wav stands by itself

    def test_samples_any_part_of_a_longer_recording_that_begins_active(self, bank_folder):
        bank = Soundbank.from_folder(bank_folder)
        pieces = [bank.sample("saw", np.random.default_rng(s), 1.0, RATE) for s in range(5)]
        assert {len(piece) for piece in pieces} == {RATE}
        assert len({piece[:100].tobytes() for piece in pieces}) > 1
        pulses = np.zeros(4 * RATE, np.float32)
        for start in np.arange(0, 4, 0.5):  # 0.1 s of sound, 0.4 s of nothing: one stretch
            pulses[int(start * RATE) : int((start + 0.1) * RATE)] = 0.5
        write_audio(bank_folder / "saw" / "1.wav", pulses, RATE)
        for seed in range(20):
            piece = bank.sample("saw", np.random.default_rng(seed), 0.3, RATE)
            assert 0 < len(piece) <= 0.1 * RATE
            assert np.abs(piece[0]) > 0.4
            assert np.abs(piece[-1]) > 0.4

    def test_treats_the_residue_of_lossy_coding_as_silence(self):
        waveform = np.full(4 * RATE, 1e-5, np.float32)
        waveform[RATE : 2 * RATE] = 0.5
        assert active_segments(waveform, RATE) == [(RATE, 2 * RATE)]
        assert active_segments(np.zeros(RATE, np.float32), RATE) == []

    def test_loops_a_background_at_constant_power(self):
        noise = np.random.default_rng(0).standard_normal(2 * RATE).astype(np.float32)
        long = loop(noise, 7 * RATE, start=123, sample_rate=RATE)
        assert long.shape == (7 * RATE,)
        parts = [power(long[first : first + 800]) for first in range(0, len(long) - 800, 800)]
        assert 0.7 < min(parts) < max(parts) < 1.4
        assert np.array_equal(loop(noise, RATE, start=5, sample_rate=RATE), noise[5 : 5 + RATE])
        assert loop(noise[:1], 3, start=0, sample_rate=RATE).tolist() == [noise[0]] * 3

    def test_gives_scenes_their_events_and_background(self, bank_folder):
        bank = Soundbank.from_folder(bank_folder)
        config = SceneConfig(sample_rate=RATE, duration=6.0, backgrounds=("rain",))
        for index in range(5):
            scene = make_scene(config, seed=0, index=index, bank=bank)
            assert {event.label for event in scene.events} <= {"dog", "saw"}
            assert min(power(part) for part in np.array_split(scene.background, 20)) > 0
            for event in scene.events:
                assert event.label == "saw" or event.duration <= 0.5 + 1e-9

    def test_names_a_recording_that_is_broken_or_silent(self, bank_folder):
        (bank_folder / "saw" / "1.wav").write_bytes(b"no audio")
        bank = Soundbank.from_folder(bank_folder)
        with pytest.raises(AudioError, match=r"saw.1\.wav"):
            bank.sample("saw", np.random.default_rng(0), 1.0, RATE)
        write_audio(bank_folder / "saw" / "1.wav", np.zeros(RATE), RATE)
        with pytest.raises(DataError, match=r"saw.1\.wav contains only silence"):
            bank.sample("saw", np.random.default_rng(0), 1.0, RATE)

    def test_is_read_from_a_table_by_fold_and_category(self, bank_folder):
        table = bank_folder / "clips.tsv"
        table.write_text(
            "filename\tfold\tcategory\ndog/1.wav\t1\tdog\ndog/2.wav\t2\tdog\nsaw/1.wav\t1\tsaw\n"
        )
        everything = Soundbank.from_table(table, bank_folder)
        assert {name: len(files) for name, files in everything.files.items()} == {
            "dog": 2,
            "saw": 1,
        }
        one = Soundbank.from_table(table, bank_folder, folds=[1], categories=["dog"])
        assert one.files == {"dog": (bank_folder / "dog" / "1.wav",)}
        with pytest.raises(SettingError, match="no fold '5'"):
            Soundbank.from_table(table, bank_folder, folds=[5])
        with pytest.raises(SettingError, match=r"no category 'dogs'; did you mean 'dog'"):
            Soundbank.from_table(table, bank_folder, categories=["dogs"])
        with pytest.raises(DataError, match=r"clips\.tsv:2: there is no recording"):
            Soundbank.from_table(table, bank_folder / "elsewhere")
        table.write_text("dog/1.wav\tdog\n")
        with pytest.raises(DataError, match="has no header"):
            Soundbank.from_table(table, bank_folder)

    def test_is_opened_from_a_folder_or_from_a_table(self, bank_folder):
        table = bank_folder / "clips.tsv"
        table.write_text("filename\tcategory\tfold\ndog/1.wav\tdog\t1\nsaw/1.wav\tsaw\t2\n")
        assert open_bank(bank_folder).categories == ("dog", "rain", "saw")
        assert open_bank(table=table, folds=["2"]).categories == ("saw",)
        assert open_bank() == ProceduralBank()
        with pytest.raises(SettingError, match="not both"):
            open_bank(bank_folder, table)
        with pytest.raises(SettingError, match="pass a table"):
            open_bank(bank_folder, folds=["1"])

    def test_must_not_be_empty(self, tmp_path):
        with pytest.raises(DataError, match="contains no recordings in category folders"):
            Soundbank.from_folder(tmp_path)
        with pytest.raises(SettingError, match="needs a recording"):
            Soundbank({})
        with pytest.raises(SettingError, match="floor_db"):
            Soundbank({"dog": (tmp_path,)}, floor_db=3.0)

    def test_makes_scenes_of_real_recordings(self, esc50):
        bank = Soundbank.from_table(
            esc50 / "clips.tsv", esc50 / "audio", folds=[1], categories=["dog", "sneezing", "rain"]
        )
        config = SceneConfig(backgrounds=("rain",), n_events=(2, 3))
        for index in range(10):
            scene = make_scene(config, seed=0, index=index, bank=bank)
            assert {event.label for event in scene.events} <= {"dog", "sneezing"}
            for event, layer in zip(scene.events, scene.layers, strict=True):
                assert event.duration <= 4.0
                edge = min(len(layer), round(0.05 * scene.sample_rate))
                loudest = np.abs(layer).max()
                assert np.abs(layer[:edge]).max() > 0.01 * loudest
                assert np.abs(layer[-edge:]).max() > 0.01 * loudest


class TestWrittenScenes:
    def test_of_one_seed_are_the_same_bytes_in_any_number_of_processes(self, tmp_path):
        for name, processes in (("one", 1), ("again", 1), ("two", 2)):
            write_scenes(tmp_path / name, 4, SMALL, seed=9, processes=processes)
        assert content(tmp_path / "one") == content(tmp_path / "again") == content(tmp_path / "two")

    def test_do_not_depend_on_how_many_there_are(self, tmp_path):
        write_scenes(tmp_path / "few", 2, SMALL, seed=9)
        write_scenes(tmp_path / "many", 5, SMALL, seed=9)
        few, many = content(tmp_path / "few"), content(tmp_path / "many")
        for name in ("audio/scene_00000.wav", "audio/scene_00001.wav"):
            assert few[name] == many[name]
        assert many["strong.tsv"].startswith(few["strong.tsv"])

    @pytest.mark.parametrize("suffix", [".wav", ".flac"])
    def test_are_audio_and_tables_that_agree(self, tmp_path, suffix):
        config = SceneConfig(
            sample_rate=8000, duration=2.0, n_events=(0, 2), event_duration=(0.3, 0.6)
        )
        written = write_scenes(tmp_path, 8, config, seed=1, prefix="a_", suffix=suffix)
        assert read_events(tmp_path / "strong.tsv") == written
        tags = read_tags(tmp_path / "weak.tsv")
        assert tags == {k: tuple(sorted({e.label for e in v})) for k, v in written.items()}
        assert () in tags.values()  # a scene without events is listed all the same
        for index, name in enumerate(written):
            waveform, sample_rate = read_audio(tmp_path / "audio" / name)
            made = make_scene(config, seed=1, index=index)
            assert sample_rate == 8000
            assert np.allclose(waveform, made.waveform, atol=1 / 32000)

    def test_are_not_overwritten_unless_asked(self, tmp_path):
        write_scenes(tmp_path, 1, SMALL, seed=0)
        before = content(tmp_path)
        with pytest.raises(DataError, match="overwrite=True"):
            write_scenes(tmp_path, 1, SMALL, seed=1)
        assert content(tmp_path) == before
        write_scenes(tmp_path, 1, SMALL, seed=1, overwrite=True)
        assert content(tmp_path).keys() == before.keys()
        assert content(tmp_path) != before

    def test_refuse_what_cannot_be_written(self, tmp_path):
        with pytest.raises(SettingError, match="n_scenes"):
            write_scenes(tmp_path, 0, SMALL)
        with pytest.raises(SettingError, match="audio format"):
            write_scenes(tmp_path, 1, SMALL, suffix=".txt")
        with pytest.raises(SettingError, match="no class"):
            write_scenes(tmp_path / "none", 1, SceneConfig(classes=("sirens",)))
        assert not (tmp_path / "none").exists()


def test_the_procedural_bank_knows_every_sound_and_noise():
    bank = ProceduralBank()
    assert set(bank.categories) == set(SOUNDS)
    assert set(bank.backgrounds) == set(NOISES)
    for name in bank.backgrounds:
        assert bank.sample_background(name, np.random.default_rng(0), 0.5, RATE).shape == (8000,)


def test_a_faster_sound_is_higher_by_as_much():
    class Tone(ProceduralBank):
        def sample(self, category, rng, duration, sample_rate):
            time = np.arange(round(duration * sample_rate)) / sample_rate
            return np.sin(2 * np.pi * 1000 * time).astype(np.float32)

    config = SceneConfig(
        n_events=(1, 1), event_duration=(1.0, 1.0), snr_db=(60, 60), speed=(1.5, 1.5)
    )
    scene = make_scene(config, 0, bank=Tone())
    (layer,) = scene.layers
    assert len(layer) == pytest.approx(32000, abs=2)
    peak = np.abs(np.fft.rfft(layer, 32000)).argmax()
    assert peak == pytest.approx(1500, abs=2)
    assert scene.waveform.shape == (320000,)


def test_a_constant_speed_of_one_changes_no_scene():
    plain, same = (make_scene(SceneConfig(), 3), make_scene(SceneConfig(speed=(1.0, 1.0)), 3))
    assert np.array_equal(plain.waveform, same.waveform)
    other = make_scene(SceneConfig(speed=(0.8, 1.25)), 3)
    assert other.waveform.shape == plain.waveform.shape
    assert not np.array_equal(plain.waveform, other.waveform)


def test_a_clean_scene_has_a_background_40_db_lower_and_the_same_events():
    config = SceneConfig(sample_rate=8000, duration=2.0, event_duration=(0.5, 1.0))
    noisy, clean = (
        make_scene(replace(config, clean=share), seed=3, index=1) for share in (0.0, 1.0)
    )
    assert noisy.events == clean.events
    ratio = np.abs(noisy.background).mean() / np.abs(clean.background).mean()
    scale = np.abs(noisy.layers[0]).max() / np.abs(clean.layers[0]).max()
    assert ratio == pytest.approx(100 * scale, rel=1e-3)
    mixed = clean.background.copy()
    for event, layer in zip(clean.events, clean.layers, strict=True):
        first = round(event.onset * 8000)
        mixed[first : first + len(layer)] += layer
    np.testing.assert_allclose(mixed, clean.waveform, atol=1e-5)
