"""What all sections of a topology file have in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Types are not bent, NaN and Inf are no numbers, unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
