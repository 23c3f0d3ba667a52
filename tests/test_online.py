"""Decoding in pieces: the same events as from the whole, as soon as they are final."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.errors import SettingError
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.calibration import Calibration
from earmark.inference.decoding import Decoding, Rule, decode_events
from earmark.inference.online import EventDecoder

GRIDS = [FrameGrid(12.5), FrameGrid(Fraction(1000, 160)), FrameGrid(50)]
SECONDS = st.sampled_from([0.0, 0.08, 0.16, 0.2, 0.4, 1.0])


@st.composite
def rules(draw, segment=0.0):
    low, high = sorted(draw(st.tuples(*[st.sampled_from([0.2, 0.4, 0.6])] * 2)))
    clip = draw(st.sampled_from([0.0, 0.3, 0.6]))
    return Rule(high, low, draw(SECONDS), draw(SECONDS), draw(SECONDS), clip, segment)


@st.composite
def recordings(draw):
    """Scores of two classes, their grid, a decoding, a duration and the sizes of pieces."""
    grid = draw(st.sampled_from(GRIDS))
    n_frames = draw(st.integers(0, 90))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Runs of loud and quiet, with values that round when they are added up.
    loud = np.repeat(rng.random((n_frames, 2)) < 0.5, rng.integers(1, 6), axis=0)[:n_frames]
    scores = np.where(loud, rng.uniform(0.3, 1, loud.shape), rng.uniform(0, 0.45, loud.shape))
    scores = scores.astype(draw(st.sampled_from([np.float32, np.float64])))
    clips = np.repeat(rng.random((n_frames, 2)), 7, axis=0)[:n_frames]
    segment = draw(st.sampled_from([0.0, 0.0, grid.hop, 0.3, 1.0]))
    segment = max(segment, grid.hop) if segment else 0.0
    decoding = Decoding(["dog", "cat"], [draw(rules(segment)), draw(rules(segment))])
    cut = draw(st.sampled_from([0.0, 0.3, 0.6, 0.999, 1.5]))  # frames of which the end is cut off
    duration = max(0.0, (n_frames - cut) * grid.hop)
    sizes = draw(st.lists(st.integers(0, 40), max_size=20))
    return scores, clips, grid, decoding, duration, sizes


def decode_in_pieces(scores, clips, decoder, sizes, duration):
    events, bounds = [], np.minimum(np.cumsum([0, *sizes]), len(scores)).tolist()
    for first, stop in zip(bounds, [*bounds[1:], len(scores)], strict=True):
        events += decoder.push(scores[first:stop], clips[first:stop])
    return sorted(events + decoder.finish(duration))


@settings(max_examples=150, deadline=None)
@given(recordings(), st.booleans())
def test_pieces_have_the_events_of_the_whole_bit_for_bit(recording, is_calibrated):
    scores, clips, grid, decoding, duration, sizes = recording
    calibration = Calibration(0.3, 0.7, 0.4, 0.6) if is_calibrated else None
    whole = FrameScores(scores, decoding.labels, grid, duration=duration, clip_scores=clips)
    expected = decode_events(whole, decoding)
    if calibration is not None:
        expected = calibration.apply(expected, whole)
    decoder = EventDecoder(decoding, grid, calibration)
    assert decode_in_pieces(scores, clips, decoder, sizes, duration) == expected


@settings(max_examples=50, deadline=None)
@given(recordings())
def test_an_event_comes_within_the_stated_delay_and_none_comes_later(recording):
    scores, clips, grid, decoding, *_ = recording
    # Without hysteresis: a run that is not confirmed may hold an event back.
    plain = [Rule(r.threshold, r.threshold, *list(vars(r).values())[2:]) for r in decoding.rules]
    decoding = Decoding(decoding.labels, plain)
    decoder = EventDecoder(decoding, grid)
    for at in range(len(scores)):
        for event in decoder.push(scores[at : at + 1], clips[at : at + 1]):
            assert event.offset <= (at + 1) * grid.hop + 1e-9
            assert (at + 1) * grid.hop - event.offset <= decoder.delay + 1e-9
    known = len(scores) * grid.hop
    for event in decoder.finish():
        assert known - event.offset < decoder.delay + 1e-9


def test_a_run_that_does_not_end_is_held_in_constant_memory():
    decoder = EventDecoder(Decoding.uniform(["dog"], 0.5, median=0.4, max_gap=0.4), GRIDS[0])
    piece = np.full((1000, 1), 0.7, np.float32)

    def n_bytes(value, seen):
        if id(value) in seen:
            return 0
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            return value.base.nbytes if value.base is not None else value.nbytes
        inner = value if isinstance(value, list | tuple) else getattr(value, "__dict__", {})
        inner = inner.values() if isinstance(inner, dict) else inner
        return sum(n_bytes(each, seen) for each in inner)

    sizes = []
    for _ in range(50):
        assert decoder.push(piece) == []
        sizes.append(n_bytes(decoder, set()))
    assert max(sizes) == sizes[1]
    (event,) = decoder.finish()
    assert (event.onset, event.offset) == (0.0, 4000.0)
    assert event.score == pytest.approx(np.float32(0.7))


def test_scores_that_cannot_be_decoded_are_refused():
    decoding = Decoding.uniform(["dog"], clip_threshold=0.5)
    decoder = EventDecoder(decoding, GRIDS[0])
    with pytest.raises(SettingError, match=r"must be \(frames, 1\)"):
        decoder.push(np.zeros((3, 2)))
    with pytest.raises(SettingError, match="from 0 to 1"):
        decoder.push(np.full((3, 1), np.nan))
    with pytest.raises(SettingError, match="needs clip-level scores"):
        decoder.push(np.zeros((3, 1)))
    decoder = EventDecoder(Decoding.uniform(["dog"]), GRIDS[0])
    decoder.push(np.zeros((3, 1)))
    with pytest.raises(SettingError, match="clip-level scores, or none"):
        decoder.push(np.zeros((3, 1)), np.zeros((3, 1)))
    with pytest.raises(SettingError, match=r"needs 5 frames of scores. Got 3"):
        decoder.finish(0.4)
    assert decoder.finish() == []
    with pytest.raises(SettingError, match="is finished"):
        decoder.push(np.zeros((3, 1)))
    with pytest.raises(SettingError, match="need clip-level"):
        EventDecoder(Decoding.uniform(["dog"]), GRIDS[0], Calibration()).push(np.zeros((1, 1)))
    with pytest.raises(SettingError, match="at least as long as a frame"):
        EventDecoder(Decoding.uniform(["dog"], segment=0.01), GRIDS[0])
