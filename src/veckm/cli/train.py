"""veckm train normals: the network that comes with the package, anew."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from veckm import __version__
from veckm.cli.verb import Verb
from veckm.data.meshes import load_meshes
from veckm.tasks.normals import save
from veckm.tasks.normals.examples import Recipe, clouds
from veckm.tasks.normals.network import NormalNet
from veckm.tasks.normals.train import Budget, make_example, train


@dataclass(frozen=True)
class TrainNormals(Verb):
    """Train the normal network: on procedural surfaces and scans, and on meshes if there are any.

    The last step is what is kept; nothing is chosen by a test. Killed and run again, it goes on.
    """

    out: Path = Path("runs/normals")
    """Folder for checkpoints, the log, and the weights at the end."""
    meshes: Path | None = None
    """Folder with .ply, .off, .obj or .stl meshes to learn from."""
    per_mesh: int = 3
    """Clouds of each mesh."""
    procedural: int = 70
    """Clouds of procedural surfaces."""
    scans: int = 20
    """Clouds of statues and streets as scanners see them."""
    stages: int = 2
    """Of the network."""
    hidden: int = 16
    """Numbers a neighbor."""
    steps: int = 3000
    """Of every stage."""
    seed: int = 0
    """Of the clouds, the weights and the order."""

    def run(self) -> None:
        """Make the clouds, train, save."""
        recipe = Recipe(self.per_mesh, self.procedural, self.scans, self.seed)
        budget = Budget(steps=self.steps, seed=self.seed)
        begin = time.perf_counter()
        found = {} if self.meshes is None else load_meshes(self.meshes)
        examples = []
        for name, pos, normal in clouds(found, recipe):
            examples.append(make_example(pos, normal))
            self.show(f"cloud {len(examples)}: {name}, {len(pos):,} points")
        if not examples:
            raise ValueError(
                "there is nothing to learn from: give --meshes, --procedural or --scans"
            )
        net = NormalNet(self.stages, self.hidden, seed=self.seed)
        train(net, examples, budget, self.out, self.show)
        about: dict[str, object] = {
            "veckm": __version__,
            "recipe": asdict(recipe),
            "budget": asdict(budget),
            "meshes": sorted(found),
            "minutes": round((time.perf_counter() - begin) / 60, 1),
        }
        save(net, self.out / "normals.safetensors", about)
        self.report(**{**about, "weights": self.out / "normals.safetensors"})
        self.show(f"written: {self.out / 'normals.safetensors'} and .json")
