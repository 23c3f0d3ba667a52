"""What requests and answers contain, in the words of the command line and of event files.

Times are float seconds. The OpenAPI page is made from these classes.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from earmark.formats.events import Event
from earmark.web.corrections import Checked
from earmark.web.library import Status

Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Sensitivity = (
    Literal["low", "normal", "high"] | Annotated[float, Field(ge=-20, le=20, allow_inf_nan=False)]
)


class Strict(BaseModel):
    """A body with these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """Why a request was refused, in one sentence.

    >>> Problem(detail="There is no such recording.").detail
    'There is no such recording.'
    """

    detail: str


class EventOut(BaseModel):
    """A sound from `onset` to `offset`, in seconds.

    >>> EventOut.of(Event(0.5, 2.0, "dog", 0.9)).event_label
    'dog'
    """

    onset: float
    offset: float
    event_label: str
    score: float | None = None

    @classmethod
    def of(cls, event: Event) -> "EventOut":
        """Return an event of the library as it is sent."""
        return cls(
            onset=event.onset, offset=event.offset, event_label=event.label, score=event.score
        )


class Health(BaseModel):
    """That the service is there, and with which model."""

    status: Literal["ok"] = "ok"
    version: str
    model: str


class DetectionOut(BaseModel):
    """The events of a recording that was sent to `POST /detect`."""

    filename: str
    duration: float
    events: list[EventOut]


class RecordingOut(BaseModel):
    """A recording of the library; `uncertainty` and `n_events` are null until it is analysed."""

    id: str
    name: str
    duration: float | None
    n_events: int | None
    uncertainty: float | None
    corrected: bool
    checked: Checked | None
    status: Status
    progress: float
    detail: str
    n_tiles: int


class ModelOut(BaseModel):
    """The model, and what the page needs to draw and to ask.

    `new_labels` are classes of corrections that it does not know; `first` is the model that the
    service was started with, another one if a model was adopted.
    """

    name: str
    first: str
    labels: list[str]
    new_labels: list[str]
    frame_rate: float
    window: float
    pooling: str | None
    stages: list[int]
    sample_rate: int
    f_min: float
    f_max: float
    n_mels: int
    mel_scale: str
    tile_seconds: float
    decoding: dict[str, dict[str, float]]
    sensitivities: dict[str, float]
    formats: dict[str, str]
    limits: dict[str, float]
    temporary_library: bool


class Rules(Strict):
    """Settings of the decoding; null is the model's own.

    >>> Rules(threshold=0.3).model_dump(exclude_none=True)
    {'threshold': 0.3}
    """

    threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    low_threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    max_gap: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] | None = None
    min_duration: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] | None = None
    median: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] | None = None
    clip_threshold: Probability | None = None


class EventsIn(Strict):
    """How to decode the scores of a recording."""

    sensitivity: Sensitivity = "normal"
    min_score: Probability | None = None
    rules: Rules = Rules()
    class_rules: Annotated[dict[Label, Rules], Field(max_length=1000)] = {}
    classes: Annotated[list[Label], Field(max_length=1000)] | None = None


class EventsOut(BaseModel):
    """The events of a recording, and the threshold of each class that gave them."""

    events: list[EventOut]
    thresholds: dict[str, float]


class ScoresOut(BaseModel):
    """Frame-level scores of a part of a recording, at most so many points; [label][point]."""

    start: float
    step: float
    labels: list[str]
    low: list[list[float]]
    high: list[list[float]]
    clip_probs: list[list[float]]


class LevelOut(BaseModel):
    """One level of the pooling; weights sum to 1 within what they are pooled to."""

    n: int
    scores: list[float]
    weights: list[float]


class HierarchicalOut(BaseModel):
    """Hierarchical pooling: frames, segments, longer segments, the clip."""

    levels: list[LevelOut]
    clip: float


class SingleOut(BaseModel):
    """Single-level pooling of the same frames."""

    weights: list[float]
    clip: float


class HierarchyOut(BaseModel):
    """How the clip-level score of one window comes about, with both kinds of pooling."""

    label: str
    start: float
    end: float
    pooling: str
    stages: list[int]
    hierarchical: HierarchicalOut
    single: SingleOut


class EventIn(Strict):
    """An event; with a score it is as it was detected, without one somebody marked it."""

    onset: Seconds
    offset: Seconds
    event_label: Label
    score: Probability | None = None


class CorrectionsIn(Strict):
    """Corrected events (null: as detected), tags that were confirmed or rejected, what is checked.

    With `checked` "tags", every class that is there is confirmed or has an event without score;
    with "events", the events are all that are there as well. Only checked recordings are learnt
    from.
    """

    events: Annotated[list[EventIn], Field(max_length=50_000)] | None
    tags: Annotated[dict[Label, bool], Field(max_length=1000)] = {}
    checked: Checked | None = None


class CorrectionsOut(BaseModel):
    """What is known of a recording: its corrections, or what was detected."""

    events: list[EventOut]
    as_detected: bool
    tags: dict[str, bool]
    checked: Checked | None
    corrected: bool


class TuneIn(Strict):
    """Settings of a tuning."""

    objective: str | None = None


class TrainIn(Strict):
    """Settings of a training."""

    max_epochs: Annotated[int, Field(ge=1, le=10_000)] = 30


class JobStarted(BaseModel):
    """The id of a job that was started."""

    id: str


class ChangeOut(BaseModel):
    """What a new model changes in one recording."""

    id: str
    name: str
    before: int
    after: int
    added: list[EventOut]
    removed: list[EventOut]


class JobOut(BaseModel):
    """A tuning or a training, and what it changed."""

    id: str
    kind: Literal["tune", "train"]
    status: Literal["running", "done", "failed", "stopped"]
    progress: float
    detail: str
    log: list[str]
    changed: list[ChangeOut]
    adopted: bool


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "The request cannot be understood.",
        401: "The token is missing or wrong.",
        403: "Another site asks.",
        404: "There is no such thing.",
        408: "The client was too slow.",
        409: "It is not possible now.",
        413: "It is larger or longer than this service allows.",
        421: "The service is not known by this name.",
        422: "Something in the request cannot work.",
        503: "There is too much to do; try again later.",
    }.items()
}
