"""Where the settings of a job come from: what was given where, told along with the values.

A job's master gets all values as arguments, and knows from `origins` which of them somebody gave, and where: what is not
in it is a default, or was worked out.  The text reads `seed=EDLZ_SEED;num_epochs=job.yaml:4;num_workers=`, with no
place for the command line.
"""

from collections.abc import Mapping
from urllib.parse import unquote

from edlz.services.configuration.job_config import JobConfig

__all__ = ["as_text", "origins_after", "places_of", "places_still_true"]


def as_text(places: Mapping[str, str]) -> str:
    """Return places by flag name as they travel with the settings."""
    return ";".join(
        f"{name}={place.replace('%', '%25').replace(';', '%3B')}" for name, place in places.items()
    )


def places_of(config: JobConfig) -> dict[str, str]:
    """Return where each setting that was given comes from, by flag name; nothing for the command line."""
    parts = [part.partition("=") for part in config.origins.split(";") if part]
    return {name: unquote(place) for name, _, place in parts}


def places_still_true(config: JobConfig, before: JobConfig) -> dict[str, str]:
    """Return where the settings of before come from that have the same values now."""
    places = places_of(before).items()
    return {name: at for name, at in places if getattr(config, name, None) == getattr(before, name, None)}


def origins_after(config: JobConfig, before: JobConfig) -> str:
    """Return the origins of a job that goes on with what it kept and what is given now."""
    return as_text({**places_still_true(config, before), **places_of(config)})
