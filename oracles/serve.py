"""Questions on standard input -> answers of sed_eval and sed_scores_eval on standard output.

Runs in `.venv-oracles` only. A line in is a JSON list of a function's name and its arguments; a
line out is `{"answer": ...}` or `{"error": ...}`. Events come as file -> [onset, offset, label].
"""

import json
import sys
import time
import traceback

import numpy as np
import sed_eval


def _rows(events, name):
    return [
        {"onset": onset, "offset": offset, "event_label": label, "filename": name}
        for onset, offset, label in events
    ]


def _score(metrics, reference, estimate):
    """Evaluate file after file, as its users do; results and the seconds it took."""
    begin = time.perf_counter()
    for name, events in reference.items():
        metrics.evaluate(_rows(events, name), _rows(estimate.get(name, []), name))
    results = metrics.results()
    seconds = time.perf_counter() - begin
    kinds = ("overall", "class_wise", "class_wise_average")
    return {kind: results[kind] for kind in kinds} | {"seconds": seconds}


def segment(reference, estimate, labels, resolution, empty_as_zero=False):
    """Segment-based scores of sed_eval."""
    metrics = sed_eval.sound_event.SegmentBasedMetrics(labels, resolution)
    metrics.empty_system_output_handling = "zero_score" if empty_as_zero else None
    return _score(metrics, reference, estimate)


QUESTIONS = {"segment": segment}


def _plain(value):
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value)} is not for JSON")


def main():
    answers, sys.stdout = sys.stdout, sys.stderr  # what they print must not get between
    for line in sys.stdin:
        question, values = json.loads(line)
        try:
            answer = {"answer": QUESTIONS[question](**values)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer, default=_plain), file=answers, flush=True)


if __name__ == "__main__":
    main()
