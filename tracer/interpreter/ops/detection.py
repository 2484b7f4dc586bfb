"""NonMaxSuppression: boxes by score, without those that overlap better ones."""

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.registry import operator
from tracer.support.types import Array


@operator("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """Batch, class and box of each box that is kept: none unless a number of boxes is given."""
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape != (len(scores), scores.shape[2], 4):
        raise ModelError(f"boxes {list(boxes.shape)} do not fit scores {list(scores.shape)}")
    most, iou = _single(max_output_boxes_per_class, 0), _single(iou_threshold, 0)
    least = None if score_threshold is None else _single(score_threshold, 0)
    found = [
        (batch, group, box)
        for batch, corners in enumerate(_corners(boxes, center_point_box))
        for group, values in enumerate(scores[batch])
        for box in _kept(corners, values, most, iou, least)
    ]
    return np.array(found, np.int64).reshape(-1, 3)


def _kept(boxes: Array, scores: Array, most: float, iou: float, least: float | None) -> list[int]:
    """The boxes of one class that are kept, best first; of equal scores the first box."""
    left = np.argsort(-scores, kind="stable")
    left = left if least is None else left[scores[left] > least]
    kept: list[int] = []
    while left.size and len(kept) < most:
        best, left = int(left[0]), left[1:]
        kept.append(best)
        left = left[~_overlap(boxes[best], boxes[left], iou)]
    return kept


def _overlap(box: Array, others: Array, iou: float) -> Array:
    """Whether the intersection with a box is more than a part of the union; empty boxes are not."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.where((sides > 0).all(axis=1), sides.prod(axis=1), 0)
    area, areas = (box[2:] - box[:2]).prod(), (others[:, 2:] - others[:, :2]).prod(axis=1)
    union = area + areas - common
    is_box = (common > 0) & (area > 0) & (areas > 0) & (union > 0)
    result: Array = is_box & (common / np.where(is_box, union, 1) > iou)
    return result


def _corners(boxes: Array, centred: int) -> Array:
    """Boxes by their lower and upper corners."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        return np.concatenate([first - second / 2, first + second / 2], axis=-1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1)


def _single(value: Array | None, default: float) -> float:
    return default if value is None or not value.size else float(value.reshape(-1)[0])
