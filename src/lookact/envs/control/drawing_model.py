"""A MuJoCo model that looks like another and is drawn many times faster; physics stay with the other.

Pictures are drawn from the physics' own data, so that only what things look like may differ: no shadows, no
multisampling, a flat box for each plane (planes are tessellated anew for each picture), meshes with few triangles.
"""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import numpy as np

CELLS = 16
"""Along a mesh's longest side; vertices of one cell become one."""
FLOOR = (3.0, 3.0, 0.001)


def drawing_model(model: Any) -> Any:
    """A copy for the renderer."""
    fast = copy.deepcopy(model)
    fast.light_castshadow[:] = 0
    fast.vis.quality.offsamples = 0
    planes = fast.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    fast.geom_type[planes] = mujoco.mjtGeom.mjGEOM_BOX
    fast.geom_size[planes] = FLOOR
    for mesh in range(fast.nmesh):
        thin_out(fast, mesh)
    return fast


def thin_out(model: Any, mesh: int) -> None:
    """Merge the vertices of each cell of a grid, and drop the triangles that vanish or repeat another."""
    first_vertex, vertices = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    first, count = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
    places = model.mesh_vert[first_vertex : first_vertex + vertices]
    low, high = places.min(axis=0), places.max(axis=0)
    cells = ((places - low) * (CELLS / max(float((high - low).max()), 1e-9))).astype(np.int64)
    _, kept, cell_of = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    faces = kept[cell_of.reshape(-1)[model.mesh_face[first : first + count]]]
    corners = np.sort(faces, axis=1)
    whole = np.flatnonzero((corners[:, 0] < corners[:, 1]) & (corners[:, 1] < corners[:, 2]))
    _, once = np.unique(corners[whole], axis=0, return_index=True)
    chosen = whole[np.sort(once)]
    # a mesh without any triangle is no mesh
    if not len(chosen):
        return
    for name in ("mesh_facenormal", "mesh_facetexcoord"):
        rows = getattr(model, name)
        rows[first : first + len(chosen)] = rows[first + chosen]
    model.mesh_face[first : first + len(chosen)] = faces[chosen]
    model.mesh_facenum[mesh] = len(chosen)
