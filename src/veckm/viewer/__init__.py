"""A cloud in the browser: its colors, its encodings, and what they remember of the surface.

shown.py    the points that are shown, and an honest choice of them where there are too many
colors.py  numbers as colors, and the legend that says which
encode.py   the encodings of the shown points for the settings of the page
surface.py  normals, curvature and their expected error, once somebody asks
paint.py    every way of coloring the cloud
pick.py     the point under a click, and what its encoding says in numbers
inside.py   the neighborhood beside the density that its encoding holds (Proposition 1)
pair.py     two clouds side by side, with the similarity of matching points
scene.py    points, lines and marks on the page
panel.py    what one can set and read beside the scene
page.py     the page as a whole: it follows the panel and the clicks
server.py   where the page is served, and how it ends
save.py     the scene as one file
"""

from veckm.viewer.page import Page
from veckm.viewer.save import save_html
from veckm.viewer.server import serve
from veckm.viewer.shown import Shown, show

__all__ = ["Page", "Shown", "save_html", "serve", "show"]
