"""Living-room and bedroom furniture out of parts; each fills width w, depth d, height h and faces +y."""

from __future__ import annotations

from lookact.envs.rooms.parts import Color, Part, box, cone, disc, shaded, tube

LINEN: Color = (244.0, 242.0, 236.0)
BRASS: Color = (212.0, 176.0, 96.0)
SOOT: Color = (30.0, 26.0, 25.0)
BOOKS: tuple[Color, ...] = (
    (196, 58, 52), (52, 98, 168), (232, 186, 62), (66, 140, 92), (226, 220, 204), (128, 70, 140), (222, 122, 52),
)  # fmt: skip


def legs(x: float, y: float, top: float, thick: float, color: Color) -> list[Part]:
    """Four square legs from the floor up to `top`, flush with the corners (±x, ±y)."""
    return [
        box(min(i * x, i * (x - thick)), min(j * y, j * (y - thick)), 0,
            max(i * x, i * (x - thick)), max(j * y, j * (y - thick)), top, color)
        for i in (-1, 1) for j in (-1, 1)
    ]  # fmt: skip


def cabinet(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """Two panelled doors with brass knobs over a drawer, under a lighter top."""
    x, y, drawer = w / 2, d / 2, 0.28 * h
    front = y - 0.04
    parts = [
        box(-x + 0.015, -y, 0.06, x - 0.015, front, h - 0.04, main),
        box(-x + 0.04, -y + 0.02, 0, x - 0.04, front - 0.04, 0.06, shaded(main, 0.5)),
        box(-x, -y, h - 0.04, x, y, h, second),
        box(-0.93 * x, front, 0.09, 0.93 * x, front + 0.015, drawer, shaded(main, 1.2)),
        box(-0.12, front + 0.015, 0.6 * drawer, 0.12, y, 0.6 * drawer + 0.03, BRASS),
    ]
    for side in (-1, 1):
        low, high = sorted((side * 0.02, side * 0.93 * x))
        parts += [
            box(low, front, drawer + 0.02, high, front + 0.015, h - 0.07, shaded(main, 1.2)),
            box(low + 0.06, front + 0.015, drawer + 0.1, high - 0.06, front + 0.02, h - 0.15, main),
            box(side * 0.06 - 0.015, front + 0.015, 0.6 * h, side * 0.06 + 0.015, y, 0.6 * h + 0.1, BRASS),
        ]
    return parts


def shelf(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """An open bookcase with rows of books of many colours."""
    x, y, board = w / 2, d / 2, 0.03
    levels = 4
    rise = (h - board) / levels
    parts = [
        box(-x, -y, 0, -x + board, y, h, main),
        box(x - board, -y, 0, x, y, h, main),
        box(-x + board, -y, 0, x - board, -y + 0.015, h, shaded(main, 0.7)),
    ]
    for level in range(levels + 1):
        parts.append(box(-x + board, -y, level * rise, x - board, y, level * rise + board, main))
    width = (w - 2 * board) / 6
    for level in range(levels):
        foot = level * rise + board
        for slot in range(5):
            left = -x + board + width * (slot + (0.6 if level % 2 else 0.1))
            tall = (0.62 + 0.07 * ((slot * 3 + level * 2) % 4)) * (rise - board)
            color = BOOKS[(slot + 3 * level + int(100 * w)) % len(BOOKS)]
            parts.append(box(left, -y + 0.03, foot, left + 0.92 * width, y - 0.06, foot + tall, color))
    return parts


def bed(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A mattress with pillows and a coloured cover, a tall headboard at the wall."""
    x, y, top = w / 2, d / 2, 0.5
    fold = y - 0.62 * d
    pillow = (0.46 if w > 1.4 else 0.7) * w
    centres = (-0.24 * w, 0.24 * w) if w > 1.4 else (0.0,)
    parts = [
        box(-x, -y, 0, x, -y + 0.06, h, second),
        box(-x, -y + 0.06, 0.12, x, y, 0.28, shaded(second, 0.85)),
        *legs(x, y, 0.12, 0.08, shaded(second, 0.6)),
        box(-x + 0.03, -y + 0.06, 0.28, x - 0.03, y - 0.03, top, LINEN),
        box(-x + 0.005, fold, 0.25, x - 0.005, y - 0.01, top + 0.035, main),
        box(-x + 0.004, fold - 0.16, 0.3, x - 0.004, fold + 0.06, top + 0.045, shaded(main, 1.35)),
    ]
    for centre in centres:
        parts.append(box(centre - pillow / 2, -y + 0.1, top, centre + pillow / 2, -y + 0.48, top + 0.11, LINEN))
    return parts


def fireplace(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """Brick pillars in courses, a mantel, and flames over logs in a black opening."""
    x, y, hearth, lintel = w / 2, d / 2, 0.08, 0.68 * h
    front, half = y - 0.08, 0.56 * w / 2
    parts = [
        box(-x, -y, h - 0.07, x, y, h, second),
        box(-0.96 * x, -y, 0, 0.96 * x, y, hearth, shaded(second, 0.62)),
        box(-half, -y, hearth, half, -y + 0.05, lintel, SOOT),
        box(-0.93 * x, -y, lintel, 0.93 * x, front, h - 0.07, main),
        box(-0.3 * x, front, lintel + 0.08, 0.3 * x, front + 0.02, h - 0.15, shaded(main, 1.25)),
    ]
    courses = 6
    rise = (lintel - hearth) / courses
    for course in range(courses):
        color = shaded(main, (1.0, 0.72, 1.22)[course % 3])
        for side in (-1, 1):
            low, high = sorted((side * half, side * 0.93 * x))
            foot = hearth + course * rise
            parts.append(box(low, -y, foot, high, front, foot + rise, color))
    for log in (-0.12, 0.04):
        parts.append(box(-0.7 * half, log, hearth, 0.7 * half, log + 0.09, hearth + 0.09, (96, 60, 36)))
    for centre, tall, color in (
        (-0.35, 0.55, (250, 142, 36)),
        (0.3, 0.62, (250, 142, 36)),
        (0.0, 0.85, (255, 206, 70)),
    ):
        foot, reach = hearth + 0.07, 0.26 * half
        tip = foot + tall * (lintel - foot)
        parts.append(cone(centre * half - reach, -0.1, foot, centre * half + reach, 0.06, tip, color))
    return parts


def stool(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A round seat on four legs with a ring to rest the feet."""
    x, y = 0.36 * w, 0.36 * d
    ring = 0.35 * h
    return [
        tube(-w / 2, -d / 2, h - 0.07, w / 2, d / 2, h, main),
        *legs(x, y, h - 0.07, 0.035, second),
        box(-x, -y, ring, x, -y + 0.02, ring + 0.025, second),
        box(-x, y - 0.02, ring, x, y, ring + 0.025, second),
        box(-x, -y, ring, -x + 0.02, y, ring + 0.025, second),
        box(x - 0.02, -y, ring, x, y, ring + 0.025, second),
    ]


def chair(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A seat on four legs, posts and slats for the back."""
    x, y, seat = w / 2, d / 2, 0.46
    return [
        *legs(x, y, seat - 0.045, 0.045, second),
        box(-x, -y, seat - 0.045, x, y, seat, main),
        box(-x, -y, seat, -x + 0.045, -y + 0.04, h, second),
        box(x - 0.045, -y, seat, x, -y + 0.04, h, second),
        box(-x + 0.045, -y + 0.005, h - 0.2, x - 0.045, -y + 0.035, h - 0.02, main),
        box(-x + 0.045, -y + 0.005, seat + 0.1, x - 0.045, -y + 0.035, seat + 0.2, main),
    ]


def table(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A thick top over an apron and four legs."""
    x, y = w / 2, d / 2
    return [
        box(-x, -y, h - 0.045, x, y, h, main),
        *legs(x - 0.04, y - 0.04, h - 0.045, 0.07, second),
        box(-x + 0.08, -y + 0.06, h - 0.13, x - 0.08, -y + 0.08, h - 0.045, second),
        box(-x + 0.08, y - 0.08, h - 0.13, x - 0.08, y - 0.06, h - 0.045, second),
        box(-x + 0.06, -y + 0.08, h - 0.13, -x + 0.08, y - 0.08, h - 0.045, second),
        box(x - 0.08, -y + 0.08, h - 0.13, x - 0.06, y - 0.08, h - 0.045, second),
    ]


def tv_monitor(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A wide dark screen with a bluish picture, on a low stand with two doors."""
    x, y, stand = w / 2, d / 2, 0.42
    front = y - 0.02
    return [
        box(-x, -y, 0.05, x, front, stand, second),
        box(-0.95 * x, -y + 0.02, 0, 0.95 * x, front - 0.03, 0.05, shaded(second, 0.5)),
        box(-0.95 * x, front, 0.09, -0.01, y, stand - 0.04, shaded(second, 1.2)),
        box(0.01, front, 0.09, 0.95 * x, y, stand - 0.04, shaded(second, 1.2)),
        box(-0.3 * x, -0.09, stand, 0.3 * x, 0.11, stand + 0.02, main),
        box(-0.05, -0.03, stand + 0.02, 0.05, 0.01, stand + 0.1, main),
        box(-x, -0.03, stand + 0.09, x, 0.03, h, main),
        box(-0.95 * x, 0.03, stand + 0.12, 0.95 * x, 0.034, h - 0.03, (20, 34, 66)),
        box(-0.95 * x, 0.034, stand + 0.12, 0.95 * x, 0.036, stand + 0.12 + 0.3 * (h - stand), (34, 66, 120)),
        disc(0.35 * x, 0.034, h - 0.25, 0.35 * x + 0.12, 0.038, h - 0.13, (110, 168, 224)),
    ]


def screen(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A TV's panel alone: a dark frame round a bluish picture."""
    x, y = w / 2, d / 2
    face = y - 0.008
    return [
        box(-x, -y, 0, x, face, h, main),
        box(-0.96 * x, face, 0.04 * h, 0.96 * x, face + 0.004, 0.96 * h, (20, 34, 66)),
        box(-0.96 * x, face + 0.004, 0.04 * h, 0.96 * x, face + 0.006, 0.36 * h, (34, 66, 120)),
        disc(0.35 * x, face + 0.004, 0.6 * h, 0.35 * x + 0.2 * h, y, 0.8 * h, (110, 168, 224)),
    ]


def screen_stand(w: float, lift: float) -> list[Part]:
    """What carries a panel whose foot is `lift` above the floor: a pole on a plate."""
    plate = 0.25 * w
    return [
        box(-0.025, -0.03, -lift, 0.025, 0.0, 0.05, SOOT),
        box(-plate, -0.16, -lift, plate, 0.12, 0.03 - lift, SOOT),
    ]


def block(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A cuboid with a lighter top."""
    x, y = w / 2, d / 2
    return [box(-x, -y, 0, x, y, 0.9 * h, main), box(-x, -y, 0.9 * h, x, y, h, shaded(main, 1.2))]


def sofa(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A back and two arms round soft cushions, two pillows, wooden feet."""
    x, y, arm = w / 2, d / 2, 0.18
    seats = 3 if w > 1.8 else 2
    span = (w - 2 * arm) / seats
    parts = [
        *legs(x - 0.03, y - 0.03, 0.1, 0.06, second),
        box(-x, -y, 0.1, x, y - 0.02, 0.28, shaded(main, 0.8)),
        box(-x, -y, 0.28, x, -y + 0.2, h, main),
        box(-x, -y + 0.2, 0.28, -x + arm, y, 0.6, main),
        box(x - arm, -y + 0.2, 0.28, x, y, 0.6, main),
    ]
    for seat in range(seats):
        left = -x + arm + seat * span
        parts.append(box(left + 0.01, -y + 0.2, 0.28, left + span - 0.01, y - 0.01, 0.43, shaded(main, 1.25)))
        parts.append(box(left + 0.02, -y + 0.2, 0.44, left + span - 0.02, -y + 0.33, h - 0.06, shaded(main, 1.15)))
    for side in (-1, 1):
        low, high = sorted((side * (x - arm - 0.04), side * (x - arm - 0.4)))
        parts.append(box(low, -y + 0.34, 0.43, high, -y + 0.45, 0.74, (238, 214, 150)))
    return parts
