"""Work a second on a processor that was measured, as its profile predicts it under a change."""

from __future__ import annotations

from math import exp
from typing import Final

from tonnage.calibration.local_inference import check_passes, pass_seconds
from tonnage.calibration.local_profile import NORMAL_80, DeviceProfile, combined_log_sd
from tonnage.errors import InputError
from tonnage.optimisations.changes import SwitchChange
from tonnage.optimisations.outcomes import Unpredicted
from tonnage.planning.local import predict_local
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import BatchJob, Job, ServeJob, TrainJob

FRESH: Final = "first touch"  # the curve of memory that the system maps and fills with zeros


def processor_rate(job: Job, change: SwitchChange, profile: DeviceProfile) -> Figure | Unpredicted:
    """Samples a second of a training, or texts a second of an encoder's passes, one text of the mean length each.

    Where the profile cannot say, the reason in its own words.
    """
    try:
        if isinstance(job, TrainJob):
            return _training_rate(job, change, profile)
        if isinstance(job, (ServeJob, BatchJob)):
            return _encoder_rate(job, change, profile)
    except InputError as error:
        return Unpredicted(said=error.message)
    return Unpredicted(said="tables are not timed on a processor")


def _training_rate(job: TrainJob, change: SwitchChange, profile: DeviceProfile) -> Figure | Unpredicted:
    made = predict_local(job, profile, threads=change.threads)
    if change.allocator is None:
        return made.samples_per_s
    if change.allocator != "glibc-keeping":
        return Unpredicted(said=f"no curve holds {change.allocator}")
    seconds = [(one.operation, profile.seconds(one, made.work.threads)) for one in made.work.operations()]
    fresh, whole = sum(taken for name, taken in seconds if name == FRESH), sum(taken for _, taken in seconds)
    return made.samples_per_s.scaled(whole / (whole - fresh))


def _encoder_rate(job: ServeJob | BatchJob, change: SwitchChange, profile: DeviceProfile) -> Figure | Unpredicted:
    """`workers` passes beside one another, one thread each. What they share (memory, caches) is in the curves."""
    if change.allocator is not None:
        return Unpredicted(said="curves of passes do not tell fresh memory apart")
    if change.runtime == "torch":
        return Unpredicted(said="no curve of a device profile holds PyTorch's forward passes")
    precision, workers = change.weights or encoder_format(job), change.workers or 1
    check_passes(profile, job.model, precision)
    tokens = max(round(job.requests.input_tokens.mean), 1)
    taken_s = pass_seconds(profile, job.model, texts=1, tokens=tokens, busy=workers, precision=precision)
    reach = exp(NORMAL_80 * combined_log_sd(profile.time_log_sd, profile.busy_log_sd))
    rate = workers / taken_s
    return Figure(value=rate, low=rate / reach, high=rate * reach)


def encoder_format(job: ServeJob | BatchJob) -> str:
    """What an encoder is computed in on a processor: as the file says where that is fp32 or int8. The formats of GPUs
    (fp16 is the default of a file) have no fast products there, and their work is done in fp32."""
    return job.weights if job.weights in ("fp32", "int8") else "fp32"
