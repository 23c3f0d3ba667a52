"""Reference against estimate -> scores.

Conventions: `reference` and `estimate` map a file name to its events. The files of the reference
are evaluated; what the estimate lacks counts as no events, what only the estimate names is told
and left out. Counts come first and are kept for each file, scores are made of their sums.

    segment     segment-based error rate and F-measure, as sed_eval counts them
"""

from earmark.metrics.segment import SegmentCounts, SegmentScores, count_segments, segment_scores

__all__ = ["SegmentCounts", "SegmentScores", "count_segments", "segment_scores"]
