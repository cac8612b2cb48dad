"""Settings that many steps share, with bounds and help texts; each step sets its own defaults."""

from typing import Annotated, Literal

from pydantic import Field

from pairsmith.modelnames import DeviceName, DtypeName

Device = Annotated[DeviceName, Field(description="auto, cpu, cuda, cuda:1 or mps.")]
Dtype = Annotated[
    DtypeName,
    Field(
        description="Number format of the model's weights. auto: bfloat16 where the machine multiplies it "
        "fast, else float32."
    ),
]
TrainingDtype = Annotated[
    Literal["auto", "float32", "bfloat16"],
    Field(
        description="Number format of the sums; weights are trained and kept in float32. auto: bfloat16 "
        "where the machine multiplies it fast, else float32."
    ),
]
BatchTokens = Annotated[
    int | None, Field(ge=1, description="Tokens that are read at once; unset: what suits the device.")
]

Executor = Annotated[
    Literal["local", "ray"],
    Field(description="Where the work is done: on this machine, or on a Ray cluster."),
]
Workers = Annotated[int, Field(ge=1, description="Processes, or actors of Ray, each with the model loaded.")]
RayAddress = Annotated[
    str | None, Field(description="Address of the Ray cluster; unset: one is started on this machine.")
]
