"""A cloud in the browser, colored by its encodings and more.

display.py          the displayed points, and which of them if there are too many
colors.py           color maps, legends, and colors by height, normals, similarity and more
encodings.py        the encodings and the surface of the displayed points, and matching points
picked.py           the numbers and the cross section of the picked point
scene.py, panel.py  what is in the scene, and the controls beside it
page.py, worker.py  the page as a whole: it follows the controls and the clicks
server.py           where it is served, or written to a file
"""

from veckm.viewer.display import DisplayCloud
from veckm.viewer.page import Page
from veckm.viewer.server import save_html, serve

__all__ = ["DisplayCloud", "Page", "save_html", "serve"]
