"""A process that runs sed_eval, sed_scores_eval and scikit-learn on request.

Runs in `.venv-oracles` only. Each line of standard input is a JSON list of a function's name and
its arguments; each line of standard output is `{"answer": ...}` or `{"error": ...}`. Events are
passed as file -> [onset, offset, label].
"""

import json
import sys
import time
import traceback

import numpy as np
import sed_eval
import sklearn.metrics


def _rows(events, name):
    return [
        {"onset": onset, "offset": offset, "event_label": label, "filename": name}
        for onset, offset, label in events
    ]


def _score(metrics, reference, estimate):
    """Evaluate file by file, as its users do; return results and CPU seconds."""
    begin = time.thread_time()
    for name, events in reference.items():
        metrics.evaluate(_rows(events, name), _rows(estimate.get(name, []), name))
    results = metrics.results()
    seconds = time.thread_time() - begin
    kinds = ("overall", "class_wise", "class_wise_average")
    return {kind: results[kind] for kind in kinds} | {"seconds": seconds}


def segment(reference, estimate, labels, resolution, empty_as_zero=False):
    """Segment-based scores of sed_eval."""
    metrics = sed_eval.sound_event.SegmentBasedMetrics(labels, resolution)
    metrics.empty_system_output_handling = "zero_score" if empty_as_zero else None
    return _score(metrics, reference, estimate)


def ranking(reference, scores, weights=None):
    """Average precision, ROC AUC and lwlrap of scikit-learn; micro and class-wise."""
    reference, scores = np.array(reference, int), np.array(scores)
    weights = np.ones(len(reference)) if weights is None else np.array(weights, float)
    labels = reference.sum(axis=1) * weights
    lrap = sklearn.metrics.label_ranking_average_precision_score
    answer = {"lwlrap": lrap(reference, scores, sample_weight=labels) if labels.any() else np.nan}
    for kind in ("average_precision", "roc_auc"):
        score = getattr(sklearn.metrics, f"{kind}_score")
        some = weights > 0
        given = {"sample_weight": weights[some]}
        answer[f"micro_{kind}"] = score(reference[some], scores[some], average="micro", **given)
        answer[kind] = [
            score(reference[some, at], scores[some, at], **given)
            for at in range(reference.shape[1])
        ]
    return answer


def tags(reference, estimate, average=None):
    """Precision, recall and F1 of scikit-learn; undefined scores are 0."""
    *scores, _ = sklearn.metrics.precision_recall_fscore_support(
        np.array(reference, int), np.array(estimate, int), average=average, zero_division=0
    )
    return scores


def event(
    reference,
    estimate,
    labels,
    collar,
    rate,
    onset=True,
    offset=True,
    matching="optimal",
    empty_as_zero=False,
):
    """Event-based scores of sed_eval; it has one collar for onset and offset."""
    metrics = sed_eval.sound_event.EventBasedMetrics(
        labels,
        evaluate_onset=onset,
        evaluate_offset=offset,
        t_collar=collar,
        percentage_of_length=rate,
        event_matching_type=matching,
        empty_system_output_handling="zero_score" if empty_as_zero else None,
    )
    return _score(metrics, reference, estimate)


def _read_scores(path):
    """Read frame-level scores from an npz: names, labels, lengths, edges and scores end to end."""
    from sed_scores_eval.base_modules.scores import create_score_dataframe

    with np.load(path) as file:
        names, labels, lengths, edges, scores = (
            file[name] for name in ("names", "labels", "lengths", "edges", "scores")
        )
    edges = np.split(edges, np.cumsum(lengths + 1)[:-1])
    scores = np.split(scores, np.cumsum(lengths)[:-1])
    return {
        name: create_score_dataframe(own, times, labels.tolist())
        for name, own, times in zip(names.tolist(), scores, edges, strict=True)
    }


def _events(reference):
    return {name: [tuple(event) for event in events] for name, events in reference.items()}


def psds(reference, scores, durations, repeats=1, **settings):
    """PSDS of sed_scores_eval: overall, class-wise, the ROCs, and CPU seconds of each run."""
    from sed_scores_eval.intersection_based import psds as sed_scores_eval_psds

    frames, events, seconds = _read_scores(scores), _events(reference), []
    for _ in range(repeats):
        begin = time.process_time()
        value, by_class, roc, rocs = sed_scores_eval_psds(frames, events, durations, **settings)
        seconds.append(time.process_time() - begin)
    rocs = {label: [tpr, efpr] for label, (tpr, efpr, *_) in rocs.items()}
    return {"value": value, "by_class": by_class, "roc": roc, "rocs": rocs, "seconds": seconds}


def best(kind, reference, scores, durations=None, **settings):
    """Best F1 and best error rate of sed_scores_eval; kind is segment, collar or intersection."""
    import importlib

    module = importlib.import_module(f"sed_scores_eval.{kind}_based")
    given = {"scores": _read_scores(scores), "ground_truth": _events(reference)} | settings
    if kind == "segment":
        given["audio_durations"] = durations
    f, precision, recall, thresholds, _ = module.best_fscore(**given)
    error_rate, *_ = module.best_error_rate(**given)
    return {
        "f_measure": f,
        "precision": precision,
        "recall": recall,
        "thresholds": {label: str(value) for label, value in thresholds.items()},
        "error_rate": error_rate,
    }


QUESTIONS = {
    "ranking": ranking,
    "tags": tags,
    "segment": segment,
    "event": event,
    "psds": psds,
    "best": best,
}


def _plain(value):
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value)} cannot be written as JSON")


def main():
    answers, sys.stdout = sys.stdout, sys.stderr  # keep their own prints out of the answers
    for line in sys.stdin:
        question, values = json.loads(line)
        try:
            answer = {"answer": QUESTIONS[question](**values)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer, default=_plain), file=answers, flush=True)


if __name__ == "__main__":
    main()
