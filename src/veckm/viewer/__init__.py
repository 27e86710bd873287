"""A cloud in the browser, colored by its encodings and more.

display.py              the displayed points, and which of them if there are too many
colors.py               color maps and legends
coloring.py             by normals, curvature, height, the file's colors or similarity
encodings.py            the encodings of the displayed points, and their colors
picking.py              the point under a click
reconstruction_view.py  a neighborhood beside the density that its encoding holds
matching.py             two clouds side by side, with the similarity of matching points
scene.py, panel.py      what is in the scene, and the controls beside it
page.py, worker.py      the page as a whole: it follows the controls and the clicks
server.py               where it is served, or written to a file
"""

from veckm.viewer.display import DisplayCloud
from veckm.viewer.page import Page
from veckm.viewer.server import save_html, serve

__all__ = ["DisplayCloud", "Page", "save_html", "serve"]
