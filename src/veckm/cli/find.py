"""veckm find: all places of a part in a scene."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from veckm.cli.text import counted, labeled, pace
from veckm.cli.verb import (
    InputFile,
    OutputFile,
    Verb,
    check_output,
    coordinates,
    option,
    read_cloud,
    save_json,
)
from veckm.inputs import check_count
from veckm.tasks.registration import LEAST, find


@dataclass(frozen=True, kw_only=True)
class Find(Verb):
    """Find all instances of a part in a scene, with their poses.

    veckm find part.ply scene.ply

    The score is the share of the part's surface that is in the scene; a scan from one side sees
    less than half of it.
    """

    part: InputFile
    scene: InputFile
    output: OutputFile = None
    """Poses and scores: .json."""
    most: Annotated[int, option("K", "100")] = 100
    """How many instances to look for."""
    least: Annotated[float, option("X", f"{LEAST:g}")] = LEAST
    """The least score, from 0 to 1."""

    def run(self) -> None:
        if self.output is not None:
            check_output(self.output, self.scene, "poses", (".json",))
        check_count(self.most, "most")
        part, scene = (coordinates(read_cloud(path)).double() for path in (self.part, self.scene))
        self.title("find")
        start = time.perf_counter()
        found = find(part, scene, most=self.most, least=self.least)
        spent = time.perf_counter() - start
        instances = [{"transform": f.transform.tolist(), "score": f.score} for f in found]
        self.show(
            labeled("found", counted(len(found), "instance")),
            labeled("time", pace(len(scene), spent)),
        )
        middle = np.append((part.amin(0) + part.amax(0)).numpy() / 2, 1)
        for k, each in enumerate(found):
            x, y, z, _ = (each.transform.numpy() @ middle).tolist()
            self.show(labeled(f"{k + 1}", f"score {each.score:.2f} at {x:.6g} {y:.6g} {z:.6g}"))
        values = {"part": self.part, "scene": self.scene, "instances": instances, "seconds": spent}
        if self.output is not None:
            save_json(self.output, dict(values))
            self.show(labeled("written", str(self.output)))
        self.report(**values)
