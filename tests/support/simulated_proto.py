"""The simulated server's protobuf, in the messages that the SDK itself carries: requests to what JSON would have said, results back."""

from __future__ import annotations

from typing import Any

import numpy as np
from tinker.proto import tinker_public_pb2 as messages

KINDS = {messages.DTYPE_FLOAT32: np.float32, messages.DTYPE_INT64: np.int64}


def read_model_pass(raw: bytes) -> tuple[str, dict[str, Any]]:
    """A forward_backward request; with `forward_only` it is a forward."""
    message = messages.ForwardBackwardRequest()
    message.ParseFromString(raw)
    data = [
        {
            "model_input": {
                "chunks": [
                    {"tokens": np.frombuffer(c.encoded_text.tokens, np.int32).tolist()} for c in datum.model_input
                ]
            },
            "loss_fn_inputs": {
                name: {"data": np.frombuffer(tensor.dense, KINDS[tensor.dtype]).tolist()}
                for name, tensor in datum.loss_fn_inputs.items()
            },
        }
        for datum in message.data
    ]
    given = {"data": data, "loss_fn": message.loss_fn, "loss_fn_config": dict(message.loss_fn_config)}
    name = "forward" if message.forward_only else "forward_backward"
    return name, {"model_id": message.model_id, "seq_id": message.seq_id, f"{name}_input": given}


def write_result(found: dict[str, Any]) -> bytes | None:
    """None for what stays JSON."""
    if "loss_fn_outputs" in found:
        arrays = [np.asarray(output["logprobs"]["data"], np.float32) for output in found["loss_fn_outputs"]]
        message = messages.ForwardBackwardOutput(loss_fn_output_type=found["loss_fn_output_type"])
        record = message.loss_fn_outputs.add(num_datums=len(arrays))
        tensor = record.fields["logprobs"]
        tensor.data, tensor.dtype = b"".join(array.tobytes() for array in arrays), messages.DTYPE_FLOAT32
        tensor.offsets = np.cumsum([0, *(array.nbytes for array in arrays)], dtype=np.int64).tobytes()
        return bytes(message.SerializeToString())
    if "sequences" in found:
        answer = messages.SampleResponse()
        for each in found["sequences"]:
            reason = messages.STOP_REASON_STOP if each["stop_reason"] == "stop" else messages.STOP_REASON_LENGTH
            tokens, logprobs = np.asarray(each["tokens"], np.int32), np.asarray(each["logprobs"], np.float32)
            answer.sequences.add(stop_reason=reason, tokens=tokens.tobytes(), logprobs=logprobs.tobytes())
        if "prompt_logprobs" in found:
            answer.prompt_logprobs = np.asarray([np.nan, *found["prompt_logprobs"][1:]], np.float32).tobytes()
        return bytes(answer.SerializeToString())
    return None
