"""A cloud in the browser, colored by what its file has, and by what can be computed of it.

display.py             the displayed points, and which of them if there are too many
fields.py, paint.py    what a cloud can be colored by, and the colors
colors.py, shading.py  color maps, legends, light and shade
encodings.py           the encodings and the surface of the displayed points, and matching points
picked.py              the fields, the numbers and the cross section of the picked point
alignment.py           two clouds before and after alignment, and their descriptors
scene.py, camera.py    what is in the scene, and where it is seen from
panel.py               the controls beside it
page.py, worker.py     the page as a whole: it follows the controls and the clicks
server.py              where it is served, or written to a file
"""

from veckm.viewer.alignment import Alignment
from veckm.viewer.display import DisplayCloud
from veckm.viewer.page import Page
from veckm.viewer.server import save_html, serve

__all__ = ["Alignment", "DisplayCloud", "Page", "save_html", "serve"]
