"""The name and the unit of a coordinate reference system."""

from __future__ import annotations

import re
from typing import NamedTuple

from veckm.cloud import PointCloud
from veckm.io.las import LasTemplate

_FOOT = 0.3048
#: Codes of units in GeoTIFF keys -> meters.
_UNITS = {9001: 1.0, 9002: _FOOT, 9003: 1200 / 3937}
_PROJECTED, _GEOGRAPHIC, _UNIT, _TEXTS = 3072, 2048, 3076, (3073, 1026, 2049)


class Crs(NamedTuple):
    """What people call a coordinate reference system, and how long its unit is."""

    name: str | None
    meters: float | None  # None if it is not known, or if the unit is an angle


def describe_crs(cloud: PointCloud) -> Crs:
    """Name and unit from WKT, else from the GeoTIFF keys of a LAS file."""
    if cloud.crs is not None and "[" in cloud.crs:
        return _of_wkt(cloud.crs)
    if not isinstance(cloud.source, LasTemplate):
        return Crs(cloud.crs, None)
    records = {record.record_id: record for record in cloud.source.header.vlrs}
    keys = {key.id: key for key in getattr(records.get(34735), "geo_keys", [])}
    text = "|".join(getattr(records.get(34737), "strings", []))
    names = [text[keys[k].value_offset :].split("|")[0] for k in _TEXTS if k in keys]
    names = [name.removeprefix("PCS Name = ").strip("\0 ") for name in names]
    name = " ".join(filter(None, (cloud.crs, f"({names[0]})" if names and names[0] else "")))
    unit = _UNITS.get(keys[_UNIT].value_offset) if _UNIT in keys else None
    if unit is None and cloud.crs and _PROJECTED in keys:
        unit = 1.0  # the usual unit where the code of the system says it all
    return Crs(name or None, unit)


def _of_wkt(wkt: str) -> Crs:
    name = re.match(r'\s*(\w+)\s*\[\s*"([^"]*)"', wkt)
    projected = re.search(r"\b(PROJCS|PROJCRS|GEOCCS|GEODCRS)\s*\[", wkt)
    meters = None
    if projected:
        # The units of the angles come first, that of a vertical system after the next one.
        body = re.split(r"\b(?:VERT_CS|VERTCRS)\s*\[", wkt[projected.start() :])[0]
        units = re.findall(r'\b(?:LENGTHUNIT|UNIT)\s*\[\s*"([^"]*)"\s*,\s*([\d.eE+-]+)', body)
        lengths = [float(size) for word, size in units if "degree" not in word.lower()]
        meters = lengths[-1] if lengths else None
    return Crs(name[2] if name else None, meters)
